"""Writes what a run does to the store, and tells the observer. Nothing that happens in a run is only printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.rollout.group import Group
from etude.store.store import Store
from etude.training.events import Event, Level, Note, Observer, RolloutsDone, StepDone, Validated

VALIDATION = "validation"  # type of the event that holds a validation's figures
ALERT = "alert"  # type of the event of a health rule


@dataclass
class Recorder:
    """keep_payloads: whether trajectories and messages are kept ("none" keeps rewards and figures only)."""

    store: Store
    run_id: str
    observer: Observer
    keep_payloads: bool = True

    def tell(self, event: Event) -> None:
        self.observer(event)

    def group(self, step: int, phase: str, group: Group, fate: str = "kept") -> None:
        """Every rollout of a group, those that faulted and were replaced too. fate: "kept" or why it was dropped."""
        rollouts = [*group.faulted, *group.rollouts]
        self.store.add_rollouts(
            self.run_id,
            step,
            phase,
            rollouts,
            [group.ticket.scenario] * len(rollouts),
            groups=[str(group.ticket.number)] * len(rollouts),
            payloads=self.keep_payloads,
        )
        for rollout in rollouts:
            if rollout.fault is not None:
                fault = rollout.fault
                self.note(
                    "warn",
                    f"{fault.where} {fault.kind}: {fault.message}",
                    type="fault",
                    step=step,
                    data={"where": fault.where, "scenario": rollout.scenario_id, "trace_id": rollout.trace_id},
                )
        if fate != "kept":
            text = f"group {group.ticket.number} (scenario {group.ticket.scenario.id}) dropped: {fate}"
            self.store.add_event(
                self.run_id,
                text,
                level="info",
                type="dropped",
                step=step,
                data={"reason": fate, "group": group.ticket.number},
            )

    def progress(self, phase: str, done: int, total: int) -> None:
        self.tell(RolloutsDone(phase, done, total))

    def step(self, step: int, steps: int, metrics: Mapping[str, float]) -> None:
        self.store.add_step(self.run_id, step, metrics)
        self.tell(StepDone(step, steps, metrics))

    def validated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        data = {"split": split, "metrics": dict(metrics)}
        self.store.add_event(
            self.run_id, f"{split} at step {step}", level="info", type=VALIDATION, step=step, data=data
        )
        self.tell(Validated(step, split, metrics))

    def was_validated(self, step: int) -> bool:
        return self.store.has_event(self.run_id, type=VALIDATION, step=step)

    def note(
        self,
        level: Level,
        message: str,
        type: str = "message",
        step: int | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        """step: None for what stays true when the run goes back to a checkpoint."""
        self.store.add_event(self.run_id, message, level=level, type=type, step=step, data=data)
        self.tell(Note(level, message, type, data or {}))

    def problems(self, problems: Sequence[str]) -> None:
        """Said before the run does anything: each may be why it does not learn."""
        for problem in problems:
            self.note("warn", problem, type="template")
