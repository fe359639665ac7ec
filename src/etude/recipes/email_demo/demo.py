"""The demo from start to end: measure, train, measure again, compare. What `etude demo` runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.evaluation.compare import Comparison, compare_runs
from etude.evaluation.run_eval import evaluate
from etude.recipes.email_demo.progress import Progress, Stage, load_progress, write_json
from etude.store.store import Store
from etude.training.checkpoints import Checkpoints
from etude.training.config import RunConfig
from etude.training.events import Event, Observer, RunStarted, StepDone, Validated
from etude.training.run import train
from etude.training.runtime import build_environment, run_folder

PROGRESS_FILE, RESULT_FILE = "demo-progress.json", "demo.json"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Demo:
    """A finished demo. runs: ids by stage. best_step: of the checkpoint that validation chose. wall_s: of training and
    evaluation, without building the companies. rollouts: how many were played to train on. commit: of the code."""

    config: RunConfig
    runs: dict[str, str]
    comparison: Comparison
    best_step: int
    wall_s: float
    rollouts: int
    commit: str | None

    def as_json(self) -> dict[str, Any]:
        """What RESULT_FILE holds."""
        changes = self.comparison.difference.items()
        return {
            "before": dict(self.comparison.before),
            "after": dict(self.comparison.after),
            "difference": {name: {"value": one.estimate, "ci95": [one.low, one.high]} for name, one in changes},
            "scenarios": self.comparison.scenarios,
            "wall_s": self.wall_s,
            "steps": self.config.training.steps,
            "best_step": self.best_step,
            "rollouts": self.rollouts,
            "seed": self.config.seed,
            "runs": self.runs,
            "commit": self.commit,
            "config": self.config.model_dump(mode="json"),
        }


def run_demo(config: RunConfig, *, observer: Observer, say: Say) -> Demo:
    """Go on with the demo that was stopped in this workspace, if it has the same settings, or start one.

    say: told, in words, what begins. Writes PROGRESS_FILE on the way and RESULT_FILE at the end, into the workspace.
    Raises EtudeError of the kind that stopped it; RunCancelled where a person did.
    """
    workspace = Path(config.workspace)
    with Store.open(workspace) as store:
        stages = _Stages(config, store, _begin(config, store, workspace / PROGRESS_FILE, say), observer)
        say("The companies, their mail and the questions (made up on first use, some 20 s)")
        build_environment(config)
        say(f"1 of 3: how it does before, greedily, on the questions of the split {config.eval.split!r}")
        stages.evaluate("before", config.model.name)
        say(f"2 of 3: {config.training.steps} steps of reinforcement; each validation chooses the checkpoint to keep")
        trained = stages.train()
        say("3 of 3: how it does after, on the same questions")
        stages.evaluate("after", f"run:{trained}")
        kept = Checkpoints(run_folder(store, trained) / "checkpoints").chosen()
        progress = stages.progress
        demo = Demo(
            config,
            dict(progress.runs),
            compare_runs(store, progress.runs["before"], progress.runs["after"]),
            kept.step if kept is not None else 0,
            sum(progress.seconds.values()),
            store.count_rollouts(trained, phase="train"),
            store.find_run(trained).git_commit,
        )
        write_json(workspace / RESULT_FILE, demo.as_json())
        return demo


def _begin(config: RunConfig, store: Store, file: Path, say: Say) -> Progress:
    settings = config.model_dump(mode="json", exclude={"workspace"})
    held = load_progress(file)
    if held is not None and held.config == settings and not held.finished:
        there = {run.id for run in store.runs()}
        held.runs = {stage: run for stage, run in held.runs.items() if run in there}
        held.done = [stage for stage in held.done if stage in held.runs]
        say("Going on with the demo that was stopped here.")
        return held
    if held is None:
        say("A new demo.")
    elif held.finished:
        say("A new demo: the last one here was finished. Its runs stay (etude runs).")
    else:
        say("A new demo: the one that was stopped here had other settings. Its runs stay (etude runs).")
    progress = Progress(settings)
    progress.save(file)
    return progress


class _Stages:
    """Each stage is left out where it is done already, timed, and noted when it is over."""

    def __init__(self, config: RunConfig, store: Store, progress: Progress, observer: Observer) -> None:
        self.config, self.store, self.progress, self._observer = config, store, progress, observer
        self._file = store.workspace / PROGRESS_FILE

    def evaluate(self, stage: Stage, model: str) -> None:
        if stage not in self.progress.done:
            named = self.config.model.model_copy(update={"name": model})
            evaluate(self.config.model_copy(update={"model": named}), observer=self._watch(stage))
            self._over(stage)

    def train(self) -> str:
        """Run the training, or go on with it; gives its id."""
        if "train" not in self.progress.done:
            run = self.progress.runs.get("train")
            # It may also have been finished by hand, with the command that is shown when it is stopped.
            if run is None or self.store.find_run(run).status != "succeeded":
                train(self.config, observer=self._watch("train"), resume=run)
            self._over("train")
        return self.progress.runs["train"]

    def _watch(self, stage: Stage) -> Observer:
        """Notes the run's id as soon as there is one, and after each step how long it took."""
        before, began = self.progress.seconds.get(stage, 0.0), time.monotonic()

        def observe(event: Event) -> None:
            if isinstance(event, RunStarted):
                self.progress.runs[stage] = event.run_id
            if isinstance(event, RunStarted | StepDone | Validated):
                self.progress.seconds[stage] = before + time.monotonic() - began
                self.progress.save(self._file)
            self._observer(event)

        return observe

    def _over(self, stage: Stage) -> None:
        self.progress.done.append(stage)
        self.progress.save(self._file)
