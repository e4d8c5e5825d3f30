"""A problem as general solvers read it: a linear program, or a conic one.

Solvers get ``x = S d`` instead of d, and each row of the limits divided by its size, so that entries are near one and
an absolute tolerance means what it says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from instances import KL, Array, Ball, Instance, Rows


def flow(instance: Instance) -> Any:
    """``Xi' - gamma P'`` as a CSC matrix."""
    pairs = instance.c.size
    Xi = sp.csc_array((np.ones(pairs), instance.state, np.arange(pairs + 1)), shape=(instance.states, pairs))
    return sp.csc_array(Xi - instance.gamma * sp.csr_array(instance.P).T)


def scaled_rows(instance: Instance) -> tuple[Any, Array]:
    """Rows and bounds of a limit on x, each divided by its size under an occupancy that obeys.

    That is ``max(|b|, |E|'d)``: the bound where no entry is negative, else no less than the mean entry.
    """
    E, b = sp.csr_array(instance.limit.E), instance.limit.b
    mean = np.where(E.min(axis=1).toarray() < 0, abs(E).mean(axis=1), 0.0)
    size = np.maximum(np.abs(b), mean)
    size = np.where(size > 0, size, 1.0)
    return sp.csc_array(sp.diags_array(1 / (instance.states * size)) @ E), b / size


def linear_program(instance: Instance) -> tuple[Any, Array, Array]:
    """``lower <= A x <= upper`` with x = S d; the cost is c and x >= 0."""
    inflow = instance.states * (1 - instance.gamma) * instance.rho
    if instance.limit is None:
        return flow(instance), inflow, inflow
    E, b = scaled_rows(instance)
    A = sp.vstack([flow(instance), E], format="csc")
    return A, np.concatenate([inflow, np.full(b.size, -np.inf)]), np.concatenate([inflow, b])


def conic_program(instance: Instance) -> tuple[Array, Any, Array, list[tuple[str, int]]]:
    """Cost, A, b and cones of ``b - A x in K`` with x = S d, followed by one t a pair for entropies.

    An exponential cone is ``y exp(x / y) <= z``; (t, d, r) in it means ``t <= -d log(d / r)``.
    """
    S, pairs, limit = instance.states, instance.c.size, instance.limit
    cost, inflow = instance.c, S * (1 - instance.gamma) * instance.rho
    A, b = [flow(instance), -sp.eye_array(pairs, format="csc")], [inflow, np.zeros(pairs)]
    cones = [("zero", S), ("nonnegative", pairs)]
    if isinstance(limit, Rows):
        rows, bounds = scaled_rows(instance)
        A, b = [*A, rows], [*b, bounds]
        cones[1] = ("nonnegative", pairs + bounds.size)
    elif isinstance(limit, Ball):
        A += [sp.csc_array((1, pairs)), -sp.eye_array(pairs, format="csc")]
        b += [np.array([S * limit.radius]), -S * limit.center]
        cones.append(("second order", pairs + 1))
    elif limit is not None:
        reference, bound = (
            (limit.reference, limit.radius) if isinstance(limit, KL) else (np.ones(pairs), -limit.at_least)
        )
        cost = np.concatenate([cost, np.zeros(pairs)])
        total = sp.csc_array((-np.ones(pairs), (np.zeros(pairs, int), np.arange(pairs, 2 * pairs))), (1, 2 * pairs))
        at = np.arange(pairs)
        rows, columns = np.concatenate([3 * at, 3 * at + 1]), np.concatenate([pairs + at, at])
        triples = sp.csc_array((-np.ones(2 * pairs), (rows, columns)), shape=(3 * pairs, 2 * pairs))
        right = np.zeros(3 * pairs)
        right[2::3] = S * reference
        wide = [sp.hstack([block, sp.csc_array((block.shape[0], pairs))]) for block in A]
        A, b = [*wide, total, triples], [*b, np.array([S * bound]), right]
        cones = [("zero", S), ("nonnegative", pairs + 1), *[("exponential", 3)] * pairs]
    return cost, sp.vstack(A, format="csc"), np.concatenate(b), cones
