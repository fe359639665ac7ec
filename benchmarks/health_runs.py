"""Makes runs that go wrong in known ways, and some that do not, and says which health rules fire on which.

    python benchmarks/health_runs.py --seeds 0 1 10 11 12 20 21 22 30 31 50 51 52 60 61 [--record] [--out FOLDER]

The runs are those of tests/support/unhealthy.py: about nine seconds each on one core. Seeds below 20 set the
thresholds (of some rules, those below 50 or 60), the others test them. --record keeps their figures in
tests/training/recorded, where the test suite looks at them. Without --seeds nothing runs: the recorded runs are looked
at again. Prints, as tables of docs/health.md, which rules fired when, and for each threshold the range in which no
verdict would differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.recorded import Recorded, alerts_of, load, save
from support.unhealthy import WORLDS, run_world

from etude.store.store import Store
from etude.training.health.history import History
from etude.training.health.rules import RULES
from etude.training.health.watch import saved_moments

FACTORS = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 6, 10]
NOT_SCALED = ("steps", "window")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=[])
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), help="names; default all")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for the runs' stores; default one that is deleted")
    parser.add_argument(
        "--extra", type=Path, nargs="*", default=[], help="workspaces whose last train run is a good one"
    )
    given = parser.parse_args()
    made = [_make(world, seed, given.out) for world in given.worlds for seed in given.seeds]
    made += [_last_run(workspace) for workspace in given.extra]
    names = {(run.world, run.seed) for run in made}
    runs = [*made, *(run for run in load() if (run.world, run.seed) not in names)] if not made or given.record else made
    runs.sort(key=lambda run: (list(WORLDS).index(run.world) if run.world in WORLDS else -1, run.seed))
    if given.record:
        save(runs)
    for line in [*fired_table(runs), "", *room_table(runs)]:
        print(line)


def _make(world: str, seed: int, out: Path | None) -> Recorded:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if out is None else out / f"{world.replace(' ', '-').replace(',', '')}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        run = run_world(world, folder, seed)
        with Store.open(folder / "work") as store:
            print(f"{world}, seed {seed}", file=sys.stderr, flush=True)
            return Recorded(world, seed, saved_moments(store, run, "answer_correct"))


def _last_run(workspace: Path) -> Recorded:
    with Store.open(workspace, read_only=True) as store:
        run = store.find_run("last", kinds=["train"])
        moments = saved_moments(store, run.id, "answer_correct")
        return Recorded(run.environment, int(run.config["seed"]), moments)


def meant_for(run: Recorded) -> frozenset[str]:
    return frozenset(WORLDS[run.world].fires) if run.world in WORLDS else frozenset()


def is_good(run: Recorded) -> bool:
    return not meant_for(run)


def fired_table(runs: Iterable[Recorded]) -> list[str]:
    """One line a world: the rules that fired, each with its first steps, those that it is meant for in bold."""
    lines = ["| run | seeds | rules that fired, and when |", "|---|---|---|"]
    for world, members in groupby(runs, key=lambda run: run.world):
        same = list(members)
        first: dict[str, list[int]] = {}
        for run in same:
            told: dict[str, int] = {}
            for alert in alerts_of(run):
                told.setdefault(alert.rule, alert.step)
            for rule, step in told.items():
                first.setdefault(rule, []).append(step)
        parts = []
        for rule, steps in sorted(first.items(), key=lambda item: (-len(item[1]), min(item[1]))):
            name = f"**{rule}**" if rule in meant_for(same[0]) else rule
            count = f", {len(steps)} of {len(same)}" if len(steps) < len(same) else ""
            when = str(min(steps)) if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"
            parts.append(f"{name} ({when}{count})")
        lines.append(f"| {world} | {', '.join(str(run.seed) for run in same)} | {', '.join(parts) or 'none'} |")
    return lines


def room_table(runs: Sequence[Recorded]) -> list[str]:
    """For each threshold, how far it could move, alone, with the rule still firing on every run that it is meant for
    and on no good one: the widest range of FACTORS around 1."""
    lines = ["| rule | threshold | default | no verdict differs from | to |", "|---|---|---|---|---|"]
    for rule in RULES.values():
        judged = [run for run in runs if is_good(run) or rule.name in meant_for(run)]
        if not any(rule.name in meant_for(run) for run in judged):
            continue
        for name, threshold in rule.thresholds.items():
            if name in NOT_SCALED:
                continue
            well = [_sound(rule.name, {name: factor * threshold.default}, judged) for factor in FACTORS]
            centre = FACTORS.index(1)
            low, high = centre, centre
            while low > 0 and well[low - 1]:
                low -= 1
            while high < len(FACTORS) - 1 and well[high + 1]:
                high += 1
            ends = [f"{FACTORS[place] * threshold.default:.3g}" for place in (low, high)]
            ends = [("≤ " if low == 0 else "") + ends[0], ("≥ " if high == len(FACTORS) - 1 else "") + ends[1]]
            lines.append(f"| `{rule.name}` | {name} | {threshold.default:g} | {ends[0]} | {ends[1]} |")
    return lines


def _sound(name: str, changed: Mapping[str, float], runs: Iterable[Recorded]) -> bool:
    """Whether the rule tells these runs apart with that threshold."""
    return all(_fires(name, changed, run) != is_good(run) for run in runs)


def _fires(name: str, changed: Mapping[str, float], run: Recorded) -> bool:
    rule, history = RULES[name], History("answer_correct")
    limits = rule.limits(changed)
    for moment in run.moments:
        history.moments.append(moment)
        if rule.check(history, limits) is not None:
            return True
    return False


if __name__ == "__main__":
    main()
