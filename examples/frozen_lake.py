"""FrozenLake with a risk budget: how many steps caution takes.

    python examples/frozen_lake.py --out frozen_lake.png

A lake of 8 x 8 tiles of ice with ten holes. A step leads where it should one time in three, and else to either side.
The environment is Gymnasium's own (``pip install cvxmdp[gym]``). The limit is on the chance to fall in before the goal
is reached, and the way is to be as short as possible. The policy is then played in the environment itself.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import numpy.typing as npt
from common import BLUE, ORANGE, at, label, panels, percent, run
from matplotlib.figure import Figure

import cvxmdp as cm

RISKS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Chances to fall in."""
COMPARED = (0.0, 0.05, 0.2)
"""Those of the sentence; the middle one is played."""
EPISODES = 2000
DISCOUNT = 1 - 1e-6
"""So near to one that a total over an episode is a chance, or a number of steps, without a discount."""
ARROWS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
"""Left, down, right, up, as Gymnasium numbers the actions; rows count downwards."""


def solve() -> tuple[np.ndarray, cm.MDP, cm.Sweep, cm.Simulation]:
    """Return the tiles, the model, the shortest way for each risk, and how one of them went in the environment."""
    env = gymnasium.make("FrozenLake-v1", map_name="8x8", max_episode_steps=10_000)
    tiles = env.unwrapped.desc.astype(str)
    over = np.append(np.isin(tiles.ravel(), ["H", "G"]), True)  # the last state of the model: the episode is done
    mdp = cm.MDP.from_gymnasium(env, discount=DISCOUNT)
    mdp = mdp.with_cost("fall", states=np.flatnonzero(tiles.ravel() == "H"), entering=True)
    mdp = mdp.with_cost("steps", states=~over)
    risk = cm.Budget("fall", at_most=COMPARED[1], per="episode")
    sweep = cm.Problem(mdp, "steps").sweep(risk, RISKS)
    return tiles, mdp, sweep, cm.play(at(sweep, COMPARED[1]).policy, env, EPISODES, seed=0, mdp=mdp)


def total(cost: npt.ArrayLike) -> np.ndarray:
    """Return the total of a game from a cost per step."""
    return np.asarray(cost) / (1 - DISCOUNT)


def insight(tiles: np.ndarray, mdp: cm.MDP, sweep: cm.Sweep, played: cm.Simulation) -> str:
    """Say what caution takes, and what was seen."""
    none, some, much = (total(at(sweep, risk).value) for risk in COMPARED)
    # No estimate is off by as much as its interval is wide, but for one run in ten thousand.
    agrees = all(
        abs(played.costs[name] - played.exact[name]) <= high - low for name, (low, high) in played.intervals.items()
    )
    return (
        f"A game takes {none:.0f} steps on average where the risk of falling in is {percent(COMPARED[0])}, {some:.0f} "
        f"where it is {percent(COMPARED[1])} and {much:.0f} where it is {percent(COMPARED[2])}; played {EPISODES} "
        f"times in the environment, the way for {percent(COMPARED[1])} "
        + ("falls in as often and takes as long as computed." if agrees else "does not do what was computed.")
    )


def draw(tiles: np.ndarray, mdp: cm.MDP, sweep: cm.Sweep, played: cm.Simulation) -> Figure:
    """Draw the steps for each risk, and the ways of two of them."""
    figure, (curve, *maps) = panels(4.3, 3.9, 3.9)
    curve.plot(100 * np.array(RISKS), total(sweep.values), "o-", color=BLUE, label="exact")
    fell, took = 100 * played.totals["fall"], played.totals["steps"]
    curve.plot(100 * total(played.intervals["fall"]), [took, took], color=ORANGE, linewidth=2.5)
    curve.plot([fell, fell], total(played.intervals["steps"]), color=ORANGE, linewidth=2.5,
               label=f"played {EPISODES} times, 95 % intervals")  # fmt: skip
    curve.set(xlim=(-1, 31), ylim=(0, 130))
    curve.legend(frameon=False, loc="lower left")
    label(curve, "What caution takes", "chance to fall in, %", "steps of a game, on average")

    column, row = np.meshgrid(*map(np.arange, tiles.shape))
    for axes, risk in zip(maps, COMPARED[::2], strict=True):
        solution = at(sweep, risk)
        visits = total(solution.visits)[:-1].reshape(tiles.shape)
        image = axes.imshow(visits, cmap="Blues", vmin=0, vmax=8)
        aims = np.zeros((mdp.num_states, 2))
        np.add.at(aims, mdp.state, solution.policy.probabilities[:, None] * ARROWS[mdp.action])
        right, down = aims[:-1].T.reshape(2, *tiles.shape)
        ice, hole = np.isin(tiles, ["F", "S"]) & (visits > 1e-3), tiles == "H"
        axes.quiver(column[ice], row[ice], right[ice], -down[ice], pivot="mid", scale=11, width=0.008, color=ORANGE)
        axes.scatter(column[hole], row[hole], s=230, color="black")
        axes.text(7, 7, "goal", ha="center", va="center", fontsize=9)
        axes.set(xticks=[], yticks=[], xlabel="start at the top left, black: holes")
        axes.set_title(f"Where to aim with a risk of {percent(risk)}", fontsize=11)
    figure.colorbar(image, ax=maps, label="visits of a tile in a game", extend="max", shrink=0.8, pad=0.02)
    return figure


if __name__ == "__main__":
    run(solve, draw, insight)
