"""What a rank has to know of states that live on others: those its own pairs lead to."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from cvxmdp.mdp import Indices
from cvxmdp.ranks.world import ALONE, Ranks

Plain = npt.NDArray[Any]


class NoHalo:
    """The halo of a model that is whole: no state lives elsewhere."""

    size = 0
    world = ALONE

    def values(self, own: Plain) -> Plain:
        """Return what the guests have, of whom there are none."""
        return own[:0]

    def everywhere(self, own: Plain) -> Plain:
        """Return what the states have."""
        return own

    def home(self, sums: Plain) -> Plain:
        """Return sums over the states."""
        return sums

    def renumbered(self, position: Indices) -> NoHalo:
        """Return the halo where states have other numbers."""
        return self


NO_HALO = NoHalo()


class Halo:
    """The states of other ranks that this rank's pairs lead to, its *guests*, and who needs which of its own.

    Parameters
    ----------
    world : Ranks
        All ranks.
    starts : array of int
        States ``starts[r]`` up to ``starts[r + 1]`` live on rank r.
    guests : array of int
        The states of others that are needed here, sorted.
    """

    def __init__(self, world: Ranks, starts: Indices, guests: Indices) -> None:
        self.world, self.size, self.guests = world, guests.size, guests
        homes = np.searchsorted(starts, guests, side="right") - 1
        self._asked = np.bincount(homes, minlength=world.size).astype(np.int32)
        self._given = np.empty_like(self._asked)
        world.comm.Alltoall(self._asked, self._given)
        wanted = np.empty(int(self._given.sum()), dtype=np.int64)
        world.comm.Alltoallv([np.ascontiguousarray(guests, dtype=np.int64), self._asked], [wanted, self._given])
        self.sent: Indices = wanted - starts[world.rank]
        """Positions of the states that others need, rank after rank."""
        sources, targets = (np.flatnonzero(n).tolist() for n in (self._asked, self._given))
        self._out = world.comm.Create_dist_graph_adjacent(sources, targets)
        self._back = world.comm.Create_dist_graph_adjacent(targets, sources)
        self._asked, self._given = self._asked[sources], self._given[targets]

    def values(self, own: Plain) -> Plain:
        """Return what the guests have, from what each rank has of its own states: one number or one row each."""
        return self._passed(self._out, own[self.sent], self._given, self._asked)

    def everywhere(self, own: Plain) -> Plain:
        """Return what this rank's own states have, and after it what its guests have."""
        return np.concatenate([own, self.values(own)])

    def home(self, sums: Plain) -> Plain:
        """Return sums over own states, once what other ranks have added up for theirs is added."""
        own = sums[: sums.shape[0] - self.size]
        np.add.at(own, self.sent, self._passed(self._back, sums[own.shape[0] :], self._asked, self._given))
        return own

    def renumbered(self, position: Indices) -> Halo:
        """Return the halo where this rank's own states have other numbers."""
        other = copy.copy(self)
        other.sent = position[self.sent]
        return other

    def _passed(self, graph: Any, given: Plain, there: Plain, here: Plain) -> Plain:
        width = int(np.prod(given.shape[1:]))
        taken = np.empty((int(here.sum()), *given.shape[1:]), dtype=given.dtype)
        if self.world.size > 1:
            graph.Neighbor_alltoallv([np.ascontiguousarray(given), there * width], [taken, here * width])
        return taken
