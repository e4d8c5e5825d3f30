"""Docstrings as Markdown: roles become links to what the site has, tables become tables, entries have one name each."""

from __future__ import annotations

import re
from typing import Any

import griffe

import cvxmdp as cm

SEVERAL = re.compile(r"^(?P<names>\w+(?:, \w+)+)\n(?P<text>(?:    .*\n?)+)", re.MULTILINE)
"""An entry for several parameters at once, whose types are those of the signature."""
ROLE = re.compile(r":(?P<kind>[a-z]+):`~?(?P<name>[\w.]+)`")
TABLE = re.compile(
    r"^(?P<rule> *=+(?:  +=+)+)\n(?P<head>.*?)\n(?P=rule)\n(?P<rows>.*?)\n(?P=rule)$", re.MULTILINE | re.DOTALL
)


def linked(role: re.Match[str], inside: str) -> str:
    """Return a link to a public name or to a method of one, else just the name."""
    path = role["name"].removeprefix("cvxmdp.").split(".")
    if path[0] in cm.__all__:
        target = path[0] if role["kind"] == "attr" else ".".join(path)  # attributes are listed with their class
    elif path[-1] in cm.__all__ and path[-1][0].isupper():  # by the module it is defined in
        target = path[-1]
    elif inside in cm.__all__ and hasattr(getattr(cm, inside), path[0]):
        target = f"{inside}.{path[0]}"
    else:
        return f"`{role['name']}`"
    return f"[`{'.'.join(path)}`][cvxmdp.{target}]"


def one_by_one(entry: re.Match[str]) -> str:
    """Return one entry for each of several parameters: each has a type of its own."""
    text = entry["text"].rstrip("\n")
    return "".join(f"{name}\n{text}\n" for name in entry["names"].split(", "))


def tabled(table: re.Match[str]) -> str:
    """Return a table as Markdown has it."""
    ends = [found.span() for found in re.finditer("=+", table["rule"])]

    def row(line: str) -> str:
        cells = [line[a : None if i + 1 == len(ends) else b].strip() for i, (a, b) in enumerate(ends)]
        return f"| {' | '.join(cells)} |"

    return "\n".join([row(table["head"]), "|---" * len(ends) + "|", *map(row, table["rows"].splitlines())])


class Docstrings(griffe.Extension):
    """Rewrite each docstring once it is known."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is None:
            return
        inside = obj.name if obj.is_class else obj.parent.name if obj.parent is not None else ""
        text = SEVERAL.sub(one_by_one, TABLE.sub(tabled, obj.docstring.value))
        obj.docstring.value = ROLE.sub(lambda role: linked(role, inside), text)
