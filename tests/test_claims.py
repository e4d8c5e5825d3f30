"""Nothing that a solution says is false or without a proof: a few of the problems of benchmarks/claims.py."""

import pytest
from claims import KINDS, faults, run

SEED, TURNS = 5, 3
SLOW = {"up to 2000 states", "rare collisions on a grid", "infeasible: impossible alone", "infeasible: compromises"}
NUMBERS = [
    turn * len(KINDS) + place
    for place, kind in enumerate(KINDS)
    for turn in range(TURNS)
    if kind not in SLOW or turn == 0
]


def test_the_problems_are_of_every_kind():
    assert {number % len(KINDS) for number in NUMBERS} == set(range(len(KINDS)))
    assert len(NUMBERS) >= 60


@pytest.mark.parametrize("number", NUMBERS)
def test_no_claim_is_refused(number):
    assert faults(run(SEED, number)) == []
