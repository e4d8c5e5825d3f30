"""Models whose arrays lie in files: they are read where they are needed, and never copied."""

import numpy as np
import scipy.sparse as sp

import cvxmdp as cm


def test_a_model_of_mapped_arrays_holds_no_copy_of_its_transitions(tmp_path):
    grid = cm.worlds.gridworld(size=30)
    P = sp.csr_array(grid.transitions)
    parts = {"data": P.data, "indices": P.indices, "indptr": P.indptr, "time": grid.costs["time"]}
    for name, array in parts.items():
        np.save(tmp_path / f"{name}.npy", array)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in parts}
    matrix = sp.csr_array((mapped["data"], mapped["indices"], mapped["indptr"]), shape=P.shape)
    costs = {"time": mapped["time"], "collision": grid.costs["collision"]}
    mdp = cm.MDP.from_pairs(grid.state, grid.action, matrix, costs, grid.discount, grid.initial)
    assert np.shares_memory(mdp.transitions.data, mapped["data"])
    assert np.shares_memory(mdp.transitions.indices, mapped["indices"])
    assert np.shares_memory(mdp.costs["time"], mapped["time"])
    assert np.shares_memory(mdp.dynamics().P.data, mapped["data"])
    limits = [cm.Budget("collision", at_most=1e-3)]
    assert cm.Problem(mdp, "time", limits).solve().value == cm.Problem(grid, "time", limits).solve().value
