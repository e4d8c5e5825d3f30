"""A model to work on, and the command line as a function."""

import sys

import pytest

import cvxmdp as cm
from cvxmdp import cli


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "grid.npz"
    cm.worlds.gridworld(size=6, obstacles=[(2, 2), (3, 3), (1, 4)]).save(path)
    return path


@pytest.fixture
def run(monkeypatch, capsys):
    """Run ``cvxmdp`` with arguments; return exit code, standard output and standard error."""

    def ran(*arguments):
        monkeypatch.setattr(sys, "argv", ["cvxmdp", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return ran
