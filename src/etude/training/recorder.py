"""Writes what a run does to the store, and tells the observer. Nothing that happens in a run is only printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.environment.scenario import Scenario
from etude.rollout.group import Group
from etude.rollout.rollout import Rollout
from etude.store.store import Store
from etude.training.events import Event, Level, Note, Observer, RolloutsDone, StepDone, Validated


@dataclass
class Recorder:
    """keep_payloads: whether trajectories and messages are kept ("none" keeps rewards and figures only)."""

    store: Store
    run_id: str
    observer: Observer
    keep_payloads: bool = True

    def tell(self, event: Event) -> None:
        self.observer(event)

    def group(self, step: int, phase: str, group: Group, fate: str) -> None:
        """Every rollout of a group, those that faulted and were replaced too. fate: "kept" or why it was dropped."""
        rollouts = [*group.faulted, *group.rollouts]
        self.rollouts(step, phase, rollouts, [group.ticket.scenario] * len(rollouts))
        for rollout in rollouts:
            if rollout.fault is not None:
                fault = rollout.fault
                self.note(
                    "warn",
                    f"{fault.where} {fault.kind}: {fault.message}",
                    type="fault",
                    data={"where": fault.where, "scenario": rollout.scenario_id, "trace_id": rollout.trace_id},
                )
        if fate != "kept":
            text = f"group {group.ticket.number} (scenario {group.ticket.scenario.id}) dropped: {fate}"
            self.store.add_event(self.run_id, level="info", type="dropped", message=text, data={"reason": fate})

    def rollouts(self, step: int, phase: str, rollouts: Sequence[Rollout], scenarios: Sequence[Scenario]) -> None:
        self.store.add_rollouts(self.run_id, step, phase, rollouts, scenarios, payloads=self.keep_payloads)

    def progress(self, phase: str, done: int, total: int) -> None:
        self.tell(RolloutsDone(phase, done, total))

    def step(self, step: int, steps: int, metrics: Mapping[str, float]) -> None:
        self.store.add_step(self.run_id, step, metrics)
        self.tell(StepDone(step, steps, metrics))

    def validated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        self.store.add_event(
            self.run_id,
            level="info",
            type="metrics",
            message=f"{split} at step {step}",
            data={"step": step, "split": split, "metrics": dict(metrics)},
        )
        self.tell(Validated(step, split, metrics))

    def note(self, level: Level, message: str, type: str = "message", data: Mapping[str, object] | None = None) -> None:
        self.store.add_event(self.run_id, level=level, type=type, message=message, data=dict(data or {}))
        self.tell(Note(level, message, type, data or {}))
