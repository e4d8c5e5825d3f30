"""The command line: arguments -> library -> words, files or JSON.  No numerics; one command a file."""

from cvxmdp.cli import check, convert, demo, info, paper, simulate, solve, sweep
from cvxmdp.cli.app import app, main

__all__ = ["app", "main"]

for _command in (
    solve.solve, sweep.sweep, simulate.simulate, check.check, info.info, convert.convert, demo.demo, paper.paper,
):  # fmt: skip
    app.command()(_command)
