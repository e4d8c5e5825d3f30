"""Files that hold a model, by the ending of their name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy.typing as npt

from cvxmdp.io.files import Path, file_name
from cvxmdp.mdp import MDP


class Format(NamedTuple):
    """How a kind of file is read and written: functions of a module that is imported when it is needed.

    ``read(path, discount, initial)`` returns a model, ``write(mdp, path)`` writes one.
    """

    said: str
    module: str
    complete: bool = False
    """Whether a file holds all of a model; else not its discount, and perhaps not the first state."""


FORMATS: dict[str, Format] = {
    ".npz": Format("arrays of NumPy", "cvxmdp.io.model", complete=True),
    ".umb": Format("the unified Markov binary format of PRISM and Storm", "cvxmdp.io.umb"),
    ".bin": Format("the binary format of PETSc and madupite, with files of costs beside it", "cvxmdp.io.petsc"),
    ".tra": Format("explicit files of PRISM, with .sta, .lab, .srew and .trew beside it", "cvxmdp.io.prism"),
    ".csv": Format("a table with a row for each transition", "cvxmdp.io.table"),
    ".parquet": Format("a table with a row for each transition", "cvxmdp.io.table"),
}


def load(
    path: Path,
    discount: float | None = None,
    initial: npt.ArrayLike | str | Mapping[str, float] | None = None,
    comm: Any = None,
) -> MDP:
    """Read a model from a file, in the format that its ending says.

    ======================  ====================================================================
    ending                  what it is
    ======================  ====================================================================
    ``.npz``                as :meth:`cvxmdp.MDP.save` writes it, with all of the model
    ``.umb``                the unified Markov binary format of PRISM and Storm
    ``.bin``                transitions as PETSc and madupite hold them: ``P.bin``, and costs in
                            ``g.bin`` or, by name, in ``g_time.bin``; infinite: not offered
    ``.tra``                explicit files of PRISM; ``.sta .lab .srew .trew`` beside it are read
    ``.csv``, ``.parquet``  columns state, action, next_state, probability and costs
    ======================  ====================================================================

    An ``.npz`` model that would fill half of the free memory stays in its file, from where the system reads it as it
    is needed, and holds as much of it as there is room for.  Such a file must not be written to while the model is in
    use; :meth:`cvxmdp.MDP.save` puts a new file in its place, which is no harm.

    Parameters
    ----------
    path : str or path
        The file.
    discount : float, optional
        Needed for all but ``.npz``, which hold none; instead of the one in an ``.npz`` file.
    initial : array, str, or mapping of str to float, optional
        As in :class:`cvxmdp.MDP`, instead of what the file says.
    comm : communicator of mpi4py or petsc4py, or True, optional
        Load the model on several ranks of MPI, True for all there are: each holds the same number of states, and what
        is wrong for one of them is an error on all.  Of ``.npz``, ``.umb`` and ``.bin`` files each rank reads its own
        part; a file in another format is read whole on each rank, which then keeps its part.

    Raises
    ------
    ValueError
        When the file is not such a model, saying what it is instead; or when it does not fit in memory and cannot be
        used where it lies, which :meth:`cvxmdp.MDP.save` sees to from 2 GB on, and ``cvxmdp convert`` in any model.

    Examples
    --------
    >>> import cvxmdp as cm, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "grid.npz"
    ...     cm.worlds.gridworld(size=3).save(path)
    ...     cm.load(path)
    MDP(9 states, 36 pairs, costs: time, collision, discount 0.99)
    """
    if comm is not None:
        from cvxmdp.ranks.load import load_parts

        return load_parts(path, discount, initial, comm)
    mdp: MDP = import_module(module_of(path, discount)).read(path, discount, initial)
    return mdp


def module_of(path: Path, discount: float | None) -> str:
    """Return the module that reads a file, after checking that there is a discount."""
    found = format_of(path)
    if discount is None and not found.complete:
        raise ValueError(
            f"{path} is {found.said}, which holds no discount; give one, as in "
            f'cm.load("{PurePath(path).name}", discount=0.99)'
        )
    return found.module


def save(mdp: MDP, path: Path) -> None:
    """Write a model in the format that the file's ending says."""
    found = format_of(path)
    if mdp.world is not None and not found.complete:
        raise ValueError(
            f"{path} is {found.said}, which is written in one place; on several ranks save the model as .npz, and turn "
            "that into another format by cvxmdp convert"
        )
    import_module(found.module).write(mdp, path)


def format_of(path: Path) -> Format:
    """Return the format of a file by its ending."""
    name = file_name(path)
    ending = PurePath(name).suffix.lower()
    if ending in FORMATS:
        return FORMATS[ending]
    if os.path.exists(name) and not os.path.isfile(name):
        raise ValueError(f"{name!r} is not a file but a folder or a device; give the name of a file")
    found = f"ends in {ending!r}" if ending else "has no ending"
    raise ValueError(f"{name!r} {found}; models are in files that end in {', '.join(FORMATS)}")
