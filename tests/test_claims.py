"""Nothing that a solution says is false or without a proof: a few of the problems of benchmarks/claims.py."""

import pytest
from claims import KINDS, faults, run

import fresh

SEED, TURNS = 31, 3
SLOW = (19, 20, 21, 37, 73)
NUMBERS = [number for number in range(TURNS * len(KINDS)) if number not in SLOW]
REFUSED = [(11, 53), (11, 370), (13, 298), (14, 1248), (14, 1421), (15, 773)]
REFUSED += [(18, 390), (20261117, 3511), (20261117, 4737), (20261117, 5373), (20261121, 1896)]
REFUSED += [(20261122, 2198)]


def test_the_problems_are_of_every_kind():
    assert {number % len(KINDS) for number in NUMBERS} == set(range(len(KINDS)))
    assert len(NUMBERS) >= 60


@pytest.mark.parametrize("number", NUMBERS)
def test_no_claim_is_refused(number):
    assert faults(run(SEED, number)) == []


@pytest.mark.parametrize(("seed", "number"), REFUSED)
def test_what_was_once_refused_is_proven(seed, number):
    assert faults(run(seed, number)) == []


@pytest.mark.parametrize("number", range(len(KINDS)), ids=lambda number: f"seed {fresh.SEED}, number {number}")
def test_problems_that_nobody_has_met_are_answered_truly(number):
    """New ones in every run; to meet them again, set CVXMDP_FRESH_SEED to the seed in the test's name."""
    assert faults(run(fresh.SEED, number)) == []
