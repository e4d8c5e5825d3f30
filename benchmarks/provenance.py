"""Which code was measured: results and pages carry its commit.

python benchmarks/provenance.py      say of each file of results how often the library has changed since
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cvxmdp

ROOT = Path(__file__).parent


def git(*words: str, folder: Path = ROOT, **settings: str) -> str:
    """What git says; nothing where it fails."""
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", **settings}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def made_by() -> dict[str, Any]:
    """The commit, and whether the library that runs differs from it."""
    where = Path(cvxmdp.__file__).parents[2]
    store = git("rev-parse", "--absolute-git-dir")
    changes = git("diff", "HEAD", "--stat", "--", "src", folder=where, GIT_DIR=store, GIT_WORK_TREE=str(where))
    return {"commit": git("rev-parse", "--short", "HEAD") or "unknown", "changed": bool(changes)}


def said(made: Iterable[Mapping[str, Any]]) -> str:
    """Say which commits were measured."""
    commits = {str(one.get("commit", "")) + (" with changes" if one.get("changed") else "") for one in made}
    noted = sorted(commits - {""})
    if not noted:
        return "before commits were noted"
    return f"at commit {', '.join(noted)}" + (", some before commits were noted" if "" in commits else "")


def found(value: Any) -> Iterator[str]:
    """All commits in what a file of results holds."""
    if isinstance(value, dict):
        if isinstance(value.get("commit"), str):
            yield value["commit"]
        for inner in value.values():
            yield from found(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from found(inner)


def main() -> None:
    """Say of each file of results how often the library has changed since it was measured."""
    for file in sorted((ROOT / "results").glob("*.json")):
        commits = sorted(set(found(json.loads(file.read_text()))))
        for commit in commits:
            since = git("rev-list", "--count", f"{commit}..HEAD", "--", "../src")
            print(f"{file.name}: {commit}, since when `src` has changed in {since or 'an unknown number of'} commits")
        if not commits:
            print(f"{file.name}: no commit was noted")


if __name__ == "__main__":
    main()
