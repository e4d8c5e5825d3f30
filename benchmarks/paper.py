"""The paper's experiments: ``cvxmdp paper table1|table2|gridworld|inexact``, run in a clone of the project.

Each writes ``<experiment>.json`` with all raw numbers to a folder, and the last two a picture beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import harness
import instances
import numpy as np
import numpy.typing as npt
import pages

import cvxmdp as cm
from cvxmdp.constraints.combine import Blocks
from cvxmdp.engines.douglas_rachford import iterates
from cvxmdp.engines.prox import Inner
from cvxmdp.report.console import print_table
from cvxmdp.report.demo import PANELS
from cvxmdp.report.plots import BLUE, ORANGE, PALE, GridPanel, plot_grid_panels

Array = npt.NDArray[np.float64]
Say = Callable[[str], None]

GREEN = "#009e73"
MEASURES = {
    "suboptimality": ("relative suboptimality", BLUE),
    "violation": ("constraint violation", ORANGE),
    "dynamics": ("dynamics violation", GREEN),
}
INNER_STEPS = (100, 2)


def run(experiment: str, out: Path, quick: bool, say: Say) -> None:
    """Run one experiment."""
    {"table1": table, "table2": table, "gridworld": gridworld, "inexact": inexact}[experiment](
        experiment, out, quick, say
    )


def keep(file: Path, data: dict[str, Any]) -> None:
    """Write the numbers of an experiment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data, indent=1) + "\n")


# --- Tables 1 and 2


def table(experiment: str, out: Path, quick: bool, say: Say) -> None:
    """Measure what is missing of a table, and print it as the paper does."""
    plan = harness.quick(harness.PLANS[experiment]) if quick else harness.PLANS[experiment]
    file = out / f"{experiment}.json"
    data = harness.measure(plan, file, say)
    say("")
    print_table(*pages.paper_table(experiment, data))
    say(f"\n{pages.PAPER_TABLE_NOTE}\nAll numbers: {file}")


# --- The grid world


def gridworld(experiment: str, out: Path, quick: bool, say: Say) -> None:
    """Solve the four panels with our default and with the paper's method, and draw what the policies do."""
    mdp = cm.worlds.gridworld()
    methods = {"auto": "auto", "as in the paper": cm.Splitting.as_in_paper()}
    panels, drawn = [], []
    for i, (time_limit, collision_limit) in enumerate(PANELS):
        limits = [cm.Budget("time", at_most=time_limit), cm.Budget("collision", at_most=collision_limit)]
        problem = cm.Problem(mdp, "time", limits)
        for name, method in methods.items():
            if quick and name != "auto":
                continue
            solution = problem.solve(method=method)
            solution.certificate.check(problem, solution.tolerance)
            panels.append({"panel": "abcd"[i], "method": name, **described(mdp, problem, solution)})
            found = panels[-1]
            say(
                f"({found['panel']}) time <= {time_limit:g}, collision <= {collision_limit:g}, {name}: "
                f"{found['verdict']}, time {found['time']:.4f}, collision {found['collision']:.2e}"
            )
            if name == "auto":
                drawn.append(
                    GridPanel(
                        mdp, solution.occupancy, time_limit, collision_limit, found["verdict"], found["time"],
                        found["collision"],
                    )
                )  # fmt: skip
    keep(out / "gridworld.json", {"panels": panels})
    plot_grid_panels(drawn, out / "gridworld.png")
    say(f"Picture: {out / 'gridworld.png'}")


def described(mdp: cm.MDP, problem: cm.Problem, solution: cm.Solution) -> dict[str, Any]:
    """What a panel's policy does, in numbers."""
    verdicts = {"OPTIMAL": "feasible, optimal", "INFEASIBLE": "infeasible, nearest policy"}
    visits = solution.visits
    shares = np.bincount(mdp.state, weights=solution.occupancy > 1e-10, minlength=mdp.num_states)
    return {
        "limits": [float(np.ravel(c.upper)[0]) for c in problem.constraints],
        "verdict": verdicts.get(solution.status.name, solution.status.name.lower().replace("_", " ")),
        "status": solution.status.name,
        "time": solution.costs["time"],
        "collision": solution.costs["collision"],
        "violation": max(c.relative(solution.occupancy) for c in problem.constraints),
        "bound": solution.bound,
        "gap": solution.gap if np.isfinite(solution.gap) else None,
        "passes": solution.stats.iterations,
        "in the destination": float(visits[-1]),
        "in the top eight rows": float(visits[: 8 * 25].sum()),
        "cells visited": int(np.sum(visits > 1e-10)),
        "cells where it randomizes": int(np.sum(shares > 1)),
    }


# --- Inexact inner steps, Appendix C


def inexact(experiment: str, out: Path, quick: bool, say: Say) -> None:
    """Follow the paper's method with 2 and with 100 inner steps, on a Garnet model and the grid world."""
    states, branching, passes = (100, 0.05, (50, 50)) if quick else (1000, 0.05, (200, 2000))
    seed = instances.seeds("linear", states, branching, 1, instances.FIRST_SEED)[0][0]
    problems = {
        f"Garnet, S = {states}, f_b = {branching:g}, seed {seed}": instances.make("linear", states, branching, seed),
        "grid world, time <= 0.9, collision <= 0.001": instances.make("panels", 625, 0.0, 0),
    }
    data: dict[str, Any] = {}
    for (name, instance), most in zip(problems.items(), passes, strict=True):
        problem = instances.problem(instance)
        best = problem.solve(1e-9 if not quick else 1e-6).value
        data[name] = {"optimum": best, "curves": {}}
        for steps in INNER_STEPS:
            say(f"{name}: {most} passes with {steps} inner steps")
            curve = list(islice(follow(problem, instance, best, steps), most))
            shown = np.unique(np.geomspace(1, most, 400).astype(int)) - 1
            data[name]["curves"][steps] = {
                "pass": (shown + 1).tolist(),
                **{key: [curve[k][key] for k in shown] for key in MEASURES},
            }
    keep(out / "inexact.json", data)
    draw_inexact(data, out / "inexact.png")
    say(f"Picture: {out / 'inexact.png'}")


def follow(
    problem: cm.Problem, instance: instances.Instance, best: float, inner_steps: int
) -> Iterator[dict[str, float]]:
    """Yield the paper's three measures of each d_k, written from its definitions."""
    paper = cm.Splitting.as_in_paper()
    settings = cm.Splitting(paper.step, paper.relaxation, inner_steps, adaptive=False, evaluation="direct", prox="qrpi")
    dynamics = problem.mdp.dynamics("direct")
    blocks = Blocks(problem.constraints, [], problem.cost)
    inner = Inner(settings, dynamics, problem.cost, np.zeros(problem.mdp.num_states))
    w = np.zeros((1, problem.mdp.num_pairs))
    assert paper.step is not None
    for it in iterates(inner, blocks, w, paper.step, paper.relaxation, anchored=False):
        d, limit = it.occupancy, instance.limit
        assert isinstance(limit, instances.Rows)
        visits = np.bincount(instance.state, weights=d, minlength=instance.states)
        flow = visits - (1 - instance.gamma) * instance.rho - instance.gamma * (instance.P.T @ d)
        yield {
            "suboptimality": float((instance.c @ d - best) / abs(best)),
            "violation": float(np.max(limit.E @ d - limit.b, initial=0.0)),
            "dynamics": float(np.max(np.abs(flow))),
        }


def draw_inexact(data: dict[str, Any], path: Path) -> None:
    """Three rows of curves for each problem: continuous with 100 inner steps, dotted with 2."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    axes = figure.subplots(len(MEASURES), len(data), sharex="col", squeeze=False)
    for column, (name, found) in enumerate(data.items()):
        axes[0, column].set_title(name, fontsize=11)
        for row, (key, (words, colour)) in enumerate(MEASURES.items()):
            ax = axes[row, column]
            for steps, curve in found["curves"].items():
                y = np.abs(curve[key])
                style = "-" if int(steps) == max(INNER_STEPS) else ":"
                ax.loglog(
                    curve["pass"], np.where(y > 0, y, np.nan), style, color=colour, linewidth=1.8,
                    label=f"{steps} inner steps",
                )  # fmt: skip
            ax.set_ylabel(f"|{words}|" if key == "suboptimality" else words)
            ax.grid(color=PALE, linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
            ax.legend(frameon=False, fontsize=9)
        axes[-1, column].set_xlabel("pass k")
    figure.savefig(path, dpi=130)
