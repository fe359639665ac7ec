"""Which settings let the demo's model learn: several runs side by side, two threads each, and a table of them.

    python benchmarks/demo_sweep.py --out FOLDER [--model MODEL] [--steps N] NAME:KEY=VALUE,KEY=VALUE ...

Every argument is one run, with the fields in which it differs from the recipe's configuration. FOLDER/sweep.json holds
each run's validations and steps. Test scenarios are not touched: what is chosen here is chosen on validation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from etude.store.store import Store

SHOWN = ("metric/answer_correct", "metric/hallucinated", "metric/attempted_answer", "turns", "reward/mean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/demo-sweep"), help="workspaces of the runs")
    parser.add_argument("--model", default="etude-demo")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which the runs are stopped")
    parser.add_argument("runs", nargs="+", metavar="NAME:KEY=VALUE,...")
    given = parser.parse_args()
    companies = given.work / "companies"
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    etude = [sys.executable, "-m", "etude"]
    common = [f"model.name={given.model}", f"environment.args.folder={companies}", f"training.steps={given.steps}"]
    given.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    # Builds the companies once, before the runs would all build them.
    subprocess.run([*etude, "train", "email_demo", *common, "--dry-run"], check=True, env=environment)
    running: dict[str, subprocess.Popen[bytes]] = {}
    for run in given.runs:
        name, _, changes = run.partition(":")
        command = [*etude, "train", "email_demo", *common, f"workspace={given.work / name}", *changes.split(",")]
        with (given.out / f"{name}.log").open("wb") as log:
            running[name] = subprocess.Popen(
                [part for part in command if part], stdout=log, stderr=subprocess.STDOUT, env=environment
            )
    for process in running.values():
        left = given.limit - (time.monotonic() - started)
        try:
            process.wait(max(1.0, left))
        except subprocess.TimeoutExpired:
            process.terminate()
    for process in running.values():
        process.wait(30)
    results = {run.partition(":")[0]: _read(given.work / run.partition(":")[0]) for run in given.runs}
    (given.out / "sweep.json").write_text(json.dumps({"runs": given.runs, "results": results}))
    for name, result in results.items():
        print(name)
        for validation in result["validations"]:
            figures = "  ".join(f"{key.split('/')[1] if '/' in key else key} {validation[key]:.3f}" for key in SHOWN)
            print(f"  step {validation['step']:3d}  {figures}")
        if result["steps"]:
            times = [step["time/step_s"] for step in result["steps"]]
            print(f"  {len(times)} steps of {sum(times) / len(times):.1f} s")


def _read(workspace: Path) -> dict[str, Any]:
    with Store.open(workspace) as store:
        runs = store.runs()
        if not runs:
            return {"validations": [], "steps": []}
        events = [event for event in store.events(runs[0].id) if event.type == "validation"]
        return {
            "validations": [{"step": event.step, **event.data["metrics"]} for event in events],
            "steps": [dict(step.metrics) for step in store.steps(runs[0].id)],
        }


if __name__ == "__main__":
    main()
