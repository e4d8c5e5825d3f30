"""Models as ``.npz`` archives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cvxmdp import memory
from cvxmdp.io.files import (
    VERSION,
    Path,
    blaming,
    file_name,
    matrix_members,
    open_archive,
    read_archive,
    take,
    take_matrix,
    write_archive,
)
from cvxmdp.mdp import MDP
from cvxmdp.names import Numbers
from cvxmdp.reading import handed_over

KIND = "cvxmdp model"


def write(mdp: MDP, path: Path) -> None:
    """Write a model."""
    header, arrays = model_parts(mdp)
    header["labels"] = list(mdp.labels)
    arrays |= {f"label:{i}": states for i, states in enumerate(mdp.labels.values())}
    if mdp.world is None:
        write_archive(path, header, arrays)
        return
    from cvxmdp.ranks.files import write_together

    write_together(mdp, path, header, arrays)


def model_parts(mdp: MDP) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and arrays of a model."""
    header = {
        "kind": KIND,
        "version": VERSION,
        "discount": mdp.discount,
        "states": stored_names(mdp.states),
        "actions": stored_names(mdp.actions),
        "costs": list(mdp.costs),
    }
    arrays = {"state": mdp.state, "action": mdp.action, "initial": mdp.initial}
    arrays |= matrix_members("P", mdp.transitions)
    arrays |= {f"cost:{i}": cost for i, cost in enumerate(mdp.costs.values())}
    return header, arrays


def read(path: Path, discount: float | None = None, initial: Any = None) -> MDP:
    """Read a model; a discount or a first state that is given replaces the file's.

    What would fill half of the free memory stays in the file, from where the system reads it as it is needed.
    """
    header, members = open_archive(path, KIND)
    size = sum(member.nbytes for member in members.values())
    if memory.fits(size):
        header, arrays = read_archive(path, KIND)
    else:
        copied = sum(member.nbytes for member in members.values() if not member.can_lie)
        free = memory.available_memory()
        if copied > free:
            raise ValueError(
                f"{file_name(path)!r} holds {memory.in_words(size)} of arrays, and {memory.in_words(free)} of memory "
                f"are free. A model can be read where it lies, but {memory.in_words(copied)} of this one are "
                "compressed or do not begin where they would have to: run cvxmdp convert MODEL.npz OTHER.npz, which "
                "takes little memory, and read the other; or load it on several ranks with comm="
            )
        arrays = {name: member.lying() for name, member in members.items()}
    with blaming(path):
        for array in arrays.values():
            handed_over(array)
        mdp = _model(header, arrays)
    mdp = mdp if discount is None else mdp.with_discount(discount)
    return mdp if initial is None else mdp.with_initial(initial)


def _model(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> MDP:
    """Build a model after checking that all sizes agree: nothing larger than the arrays is made before."""
    state = take(arrays, "state", [None], "iu")
    initial = take(arrays, "initial", [None])
    action = take(arrays, "action", [state.size], "iu")
    P = handed_over(
        take_matrix(arrays, "P", (state.size, initial.size))
    )  # also what numbers of fewer bits were made of
    names = read_texts(header, "costs")
    if len(set(names)) != len(names):
        raise ValueError("the header gives two costs the same name")
    costs = {name: take(arrays, f"cost:{i}", [state.size]) for i, name in enumerate(names)}
    labels = read_texts(header, "labels") if "labels" in header else ()
    labelled = {name: take(arrays, f"label:{i}", [None], "iu") for i, name in enumerate(labels)}
    if len(labelled) != len(labels):
        raise ValueError("the header gives two labels the same name")
    known = {"state", "action", "initial", *matrix_members("P", P), *(f"cost:{i}" for i in range(len(names)))}
    known |= {f"label:{i}" for i in range(len(labels))}
    if unknown := sorted(set(arrays) - known):
        raise ValueError(f"the array {unknown[0]!r} is none of a model with {len(names)} costs")
    if not isinstance(header.get("discount"), float):
        raise ValueError("the header has no discount that is a number between 0 and 1")
    actions = int(action.max()) + 1 if action.size else 0
    return MDP.from_pairs(
        state, action, P, costs, header["discount"], initial,
        read_stored_names(header, "states", initial.size), read_stored_names(header, "actions", actions),
        labelled,
    )  # fmt: skip


def stored_names(names: Sequence[str]) -> int | list[str]:
    """Return names as a header holds them: how many there are, where they are numbers."""
    return len(names) if isinstance(names, Numbers) else list(names)


def read_stored_names(header: Mapping[str, Any], what: str, count: int) -> tuple[str, ...] | None:
    """Return names of states or actions that a header holds, or None where they are ``count`` numbers."""
    if type(header.get(what)) is not int:
        return read_texts(header, what)
    if header[what] != count:
        raise ValueError(f"the header states {header[what]} {what}; the arrays have {count}")
    return None


def read_texts(header: Mapping[str, Any], what: str) -> tuple[str, ...]:
    """Return a list of strings that a header holds."""
    texts = header.get(what)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the header has no list of names called {what!r}")
    return tuple(texts)
