"""Policies as tables: a row for each action that is taken."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping

from cvxmdp.io.files import Path, file_name, open_to_read, write_atomically
from cvxmdp.mdp import MDP
from cvxmdp.names import no_such, spreadsheet_safe
from cvxmdp.policy import Policy

COLUMNS = ["state", "action", "probability"]


def write_policy(policy: Policy, path: Path) -> None:
    """Write the actions that are taken, so that no spreadsheet takes a name for a formula."""
    if not file_name(path).lower().endswith(".csv"):
        raise ValueError(f"{file_name(path)!r} does not end in .csv, which is how a policy is written")
    with write_atomically(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        writer.writerows(
            [spreadsheet_safe(state), spreadsheet_safe(action), probability]
            for state, action, probability in policy.table()
        )
        text.detach()


def read_policy(mdp: MDP, path: Path) -> Policy:
    """Read a policy of a model, as :meth:`cvxmdp.Policy.save` writes it; without probabilities they are one.

    Raises
    ------
    ValueError
        With the file and the line, where a name, a number or a row is not right.

    Examples
    --------
    >>> import cvxmdp as cm, pathlib, tempfile
    >>> from cvxmdp.io.policy import read_policy
    >>> mdp = cm.worlds.gridworld(size=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "policy.csv"
    ...     mdp.policy([3, 1, 3, 3]).save(path)
    ...     read_policy(mdp, path).table()[0]
    ('r0c0', 'right', 1.0)
    """
    states, actions = _by_text(mdp.states), _by_text(mdp.actions)
    found: dict[str, dict[str, float]] = {}
    with open_to_read(path) as file:
        try:
            rows = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""))
            header = next(rows, [])
            if header not in (COLUMNS, COLUMNS[:2]):
                raise ValueError(f"line 1: the columns must be {', '.join(COLUMNS)}, not {', '.join(header) or 'none'}")
            for row in rows:
                if not row:
                    continue
                where = f"line {rows.line_num}: "
                if len(row) != len(header):
                    raise ValueError(f"{where}there are {len(row)} entries; there must be {len(header)}")
                try:
                    state = _meant("state", row[0], states)
                    action = _meant("action", row[1], actions)
                    taken = found.setdefault(state, {})
                    if action in taken:
                        raise ValueError(f"state {row[0]!r} and action {row[1]!r} are there twice")
                    taken[action] = _probability(row[2]) if len(row) > 2 else 1.0
                except ValueError as error:
                    raise ValueError(f"{where}{error}") from None
        except UnicodeDecodeError:
            raise ValueError("this is not a text in UTF-8") from None
        except csv.Error as error:
            raise ValueError(f"this is not a table of comma-separated values: {error}") from None
        return mdp.policy(found)


def _by_text(names: Iterable[str]) -> dict[str, str | None]:
    """Return names by how they are written in a file: as they are, or safe; None where two are written alike."""
    found: dict[str, str | None] = {}
    for name in names:
        for text in {name, spreadsheet_safe(name)}:
            found[text] = name if found.get(text, name) == name else None
    return found


def _meant(kind: str, text: str, names: Mapping[str, str | None]) -> str:
    if text not in names:
        raise ValueError(no_such(kind, text, names))
    name = names[text]
    if name is None:
        raise ValueError(f"{text!r} may be either of two {kind}s of the model, which are written alike; rename one")
    return name


def _probability(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the probability is {text!r}; it must be a number") from None
