"""The script on the page runs, on a smaller grid."""

import os
import re
from pathlib import Path

from mpi4py import MPI

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def test_the_script_of_the_page_runs_on_all_ranks(tmp_path_factory, monkeypatch, capsys):
    code = re.search(r"```python title=.*?\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    folder = MPI.COMM_WORLD.bcast(str(tmp_path_factory.mktemp("page")) if MPI.COMM_WORLD.rank == 0 else None)
    monkeypatch.chdir(folder)
    names = {}
    exec(code.replace("2000", "20").replace("0.9995", "0.95"), names)
    assert os.path.exists("answer.npz")
    if MPI.COMM_WORLD.rank == 0:
        assert capsys.readouterr().out.startswith("OPTIMAL")
        assert names["visits"].shape == (400,)
    else:
        assert names["visits"] is None
