"""The demo on several seeds, and with rewards shuffled as a control: does it hold every time?

    python benchmarks/demo_seeds.py --out FOLDER [--seeds 0 1 2] [--control 0] [KEY=VALUE ...]

One demo after the other, each as a person would start it. Prints a line for each: accuracy before and after on the test
questions, the paired difference, and what else has a bound. FOLDER/demo_seeds.json holds their `demo.json`s; a demo
that FOLDER holds already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--control", type=int, nargs="*", default=[0], help="seeds to run with shuffled rewards too")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    given = parser.parse_args()
    runs = [(f"seed {seed}", [f"seed={seed}"]) for seed in given.seeds]
    runs += [(f"seed {seed}, shuffled", [f"seed={seed}", "learning.shuffle_rewards=true"]) for seed in given.control]
    results = {}
    for name, changes in runs:
        workspace = given.out / name.replace(", ", "-").replace(" ", "-")
        results[name] = _demo(workspace, [*given.changes, *changes, f"environment.args.folder={given.out / 'mail'}"])
        print(_line(name, results[name]), flush=True)
        (given.out / "demo_seeds.json").write_text(json.dumps(results, indent=1) + "\n")


def _demo(workspace: Path, changes: list[str]) -> dict[str, Any]:
    file = workspace / "demo.json"
    if not file.is_file():
        workspace.mkdir(parents=True, exist_ok=True)
        with (workspace / "output.txt").open("w") as output:
            command = [sys.executable, "-m", "etude", "demo", f"workspace={workspace}", *changes]
            subprocess.run(command, check=True, stdout=output, stderr=subprocess.STDOUT, env={**os.environ})
    made = json.loads(file.read_text())
    # The largest of all demos so far: good for a bound.
    made["peak_gib_at_most"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return made


def _line(name: str, made: dict[str, Any]) -> str:
    def change(figure: str, scale: float, digits: int) -> str:
        one = made["difference"][figure]
        low, high = one["ci95"]
        return (
            f"{scale * made['before'][figure]:.{digits}f} -> {scale * made['after'][figure]:.{digits}f} "
            f"({scale * one['value']:+.{digits}f}, {scale * low:+.{digits}f} to {scale * high:+.{digits}f})"
        )

    return (
        f"{name:18s} right {change('answer_correct', 100, 1)}  wrong/attempted {change('hallucination_rate', 100, 1)}  "
        f"turns {change('turns', 1, 2)}  read {change('ever_read_right_email', 100, 1)}  "
        f"step {made['best_step']}  {made['wall_s']:.0f} s  {made['peak_gib_at_most']:.2f} GiB"
    )


if __name__ == "__main__":
    main()
