"""The demo: the paper's grid world under four pairs of limits, as a table and as pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import cvxmdp as cm
from cvxmdp.problem import Problem
from cvxmdp.report.console import live_progress, print_table
from cvxmdp.report.text import describe_conflict
from cvxmdp.solution import Solution

PANELS = [(0.9, 1e-3), (0.9, 2e-4), (0.9, 2e-5), (0.6, 2e-5)]
"""Limits on time and collision of the paper's four grid worlds."""
LETTERS = "abcd"


class Panel(NamedTuple):
    """One pair of limits, and what came of it."""

    letter: str
    time: float
    collision: float
    problem: Problem
    solution: Solution


def show_demo(out: Path, echo: Callable[[str], object]) -> bool:
    """Solve, print a table through ``echo``, and write pictures and solutions into a folder; False after Ctrl-C."""
    out.mkdir(parents=True, exist_ok=True)
    mdp = cm.worlds.gridworld()
    echo("Grid world of 25 x 25 cells: go from the top left to the bottom right, past 45")
    echo("obstacles. Minimize time under limits on time and collision.\n")
    panels: list[Panel] = []
    for i, (time, collision) in enumerate(PANELS):
        limits = [cm.Budget("time", at_most=time), cm.Budget("collision", at_most=collision)]
        problem = cm.Problem(mdp, minimize="time", subject_to=limits)
        with live_progress(prefix=f"panel {i + 1} of {len(PANELS)}, ") as show:
            solution = problem.solve(callback=show)
        if solution.status is cm.Status.INTERRUPTED:
            return False
        solution.certificate.check(problem)
        solution.save(out / f"panel-{i + 1}.npz")
        panels.append(Panel(LETTERS[i], time, collision, problem, solution))
    columns = ["", "time<=", "coll.<=", "verdict", "time", "collision", "proven", "seconds"]
    print_table(columns, [_row(panel) for panel in panels])
    echo(
        "\noptimal: the policy costs at most the proven relative gap more than any other."
        "\ninfeasible: no policy can obey both limits. The policy shown comes nearest, and"
        "\nthe proven distance is that of every policy's visits to what is allowed."
        "\nAll proofs were checked again from the model's data."
    )
    for panel in panels:
        if panel.solution.infeasibility is not None:
            echo("\n".join(["", f"Panel ({panel.letter})", *describe_conflict(panel.solution)]))
    echo(f"\nSolutions: {out}/panel-1.npz to panel-4.npz.\n{_pictures(panels, out)}")
    return True


def _row(panel: Panel) -> list[str]:
    solution = panel.solution
    if solution.infeasibility is None:
        proof = f"gap {max(solution.gap, 0.0):.0e}"
    else:
        proof = f"distance {solution.infeasibility.distance[0]:.1e}"
    costs = (f"{solution.costs['time']:.4f}", f"{solution.costs['collision']:.2e}")
    seconds = f"{solution.stats.seconds['total']:.1f}"
    verdict = solution.status.name.lower().replace("_", " ")
    return [f"({panel.letter})", f"{panel.time:g}", f"{panel.collision:.0e}", verdict, *costs, proof, seconds]


def _limits(panel: Panel) -> str:
    return f"time $\\leq$ {panel.time:g} and collision $\\leq$ {panel.collision:g}"


def _pictures(panels: list[Panel], out: Path) -> str:
    """Draw the panels and their conflicts; return where they are, or why there are none."""
    verdicts = {"OPTIMAL": "feasible, optimal", "INFEASIBLE": "infeasible, nearest policy"}
    try:
        from cvxmdp.report.conflict import plot_conflicts
        from cvxmdp.report.plots import GridPanel, plot_grid_panels

        drawn = [
            GridPanel(
                panel.problem.mdp,
                panel.solution.occupancy,
                panel.time,
                panel.collision,
                verdicts.get(panel.solution.status.name, panel.solution.status.name.lower()),
                panel.solution.costs["time"],
                panel.solution.costs["collision"],
            )
            for panel in panels
        ]
        conflicts = [
            (panel.problem, panel.solution, f"({panel.letter})  no policy obeys {_limits(panel)}")
            for panel in panels
            if panel.solution.infeasibility is not None
        ]
        plot_grid_panels(drawn, out / "gridworld.png")
        plot_conflicts(conflicts, out / "conflicts.png")
    except ImportError as missing:
        return f"No pictures: {missing}"
    return f"Pictures: {out / 'gridworld.png'} and {out / 'conflicts.png'}"
