"""Health of a run in the store: what its steps and validations say, told once each, while it goes on or afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from etude.learning.advantages import AdvantageKind
from etude.store.groups import groups_of
from etude.store.records import Step
from etude.store.store import Store
from etude.training.config import HealthConfig, parse_config
from etude.training.health.figures import PREFIX, step_figures
from etude.training.health.history import Figures, Moment
from etude.training.health.rule import Alert
from etude.training.health.rules import Monitor
from etude.training.ledger import ledgers_of
from etude.training.recorder import ALERT, VALIDATION, Recorder


@dataclass
class Watch:
    """Looks at a run after each step. What it knows is all in the store, so a resumed run is shown what it had, and an
    alert that was told is neither lost nor told again."""

    config: HealthConfig
    recorder: Recorder
    _step: int = field(default=-1, init=False)
    _event: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.monitor = Monitor(self.config.held_out, self.config.thresholds)
        events = self.recorder.store.events(self.recorder.run_id)
        self._told = {(event.data["rule"], event.step) for event in events if event.type == ALERT}

    def look(self) -> list[Alert]:
        """What is new since the last look, written down and told. Call after the step's validation, if it has one."""
        new = []
        for moment in self._new_moments():
            for alert in self.monitor.see(moment):
                if (alert.rule, alert.step) not in self._told:
                    self._tell(alert)
                    new.append(alert)
        return new

    def pauses(self, alert: Alert) -> bool:
        return not {"all", alert.rule}.isdisjoint(self.config.pause_on)

    def _new_moments(self) -> list[Moment]:
        store, run = self.recorder.store, self.recorder.run_id
        events = store.events(run, after=self._event)
        self._event = max((event.id for event in events), default=self._event)
        validations = {
            event.step: event.data["metrics"] for event in events if event.type == VALIDATION and event.step is not None
        }
        moments = _merged({step.step: step.metrics for step in store.steps(run, after=self._step)}, validations)
        self._step = max((moment.step for moment in moments), default=self._step)
        return moments

    def _tell(self, alert: Alert) -> None:
        self._told.add((alert.rule, alert.step))
        data = {"rule": alert.rule, "evidence": dict(alert.evidence), "advice": alert.advice}
        self.recorder.note(
            alert.level, f"{alert.rule}: {alert.message}. {alert.advice}", type=ALERT, step=alert.step, data=data
        )


@dataclass(frozen=True)
class Health:
    """alerts: in the order in which they were, or would have been, told. active: rules that had not cleared at the end.
    unseen: steps of which no figures could be had, because their rollouts were not kept."""

    alerts: list[Alert]
    active: frozenset[str]
    steps: int
    unseen: int


def health_of(store: Store, run: str, changes: HealthConfig | None = None) -> Health:
    """Looks at a run afterwards. changes: other thresholds, or another held-out metric, than the run was watched with.

    Figures that the run did not write down (it was made by an older Etude, or is compared with another held-out
    metric) are computed from its saved rollouts. Raises StorageError."""
    saved = parse_config(store.find_run(run).config)
    config = saved.health if changes is None else changes
    again = config.held_out != saved.health.held_out
    moments = saved_moments(store, run, config.held_out, saved.learning.advantage, again=again)
    monitor = Monitor(config.held_out, config.thresholds)
    alerts = [alert for moment in moments for alert in monitor.see(moment)]
    trained = [moment for moment in moments if moment.figures]
    unseen = sum(f"{PREFIX}tries" not in moment.figures for moment in trained)
    return Health(alerts, monitor.active, len(trained), unseen)


def saved_moments(
    store: Store, run: str, held_out: str | None, advantage: AdvantageKind = "mean", *, again: bool = False
) -> list[Moment]:
    """Every step of a run, and what was validated after it. again: compute all figures anew from saved rollouts."""
    events = store.events(run)
    validations = {
        event.step: event.data["metrics"] for event in events if event.type == VALIDATION and event.step is not None
    }
    steps = {step.step: step for step in store.steps(run)}
    dropped = {(event.step, str(event.data["group"])) for event in events if event.type == "dropped"}
    missing = {number for number, step in steps.items() if again or f"{PREFIX}tries" not in step.metrics}
    ledgers = ledgers_of(store, run, advantage) if missing else {}
    figures: dict[int, Figures] = {}
    for number, step in steps.items():
        kept = step.metrics
        if number in missing:
            kept = {name: value for name, value in kept.items() if not (again and name.startswith(PREFIX))}
            kept |= ledgers[number].metrics() if number in ledgers else {}
            kept |= _from_rollouts(store, run, step, {group for at, group in dropped if at == number}, held_out)
        figures[number] = kept
    return _merged(figures, validations)


def _from_rollouts(store: Store, run: str, step: Step, dropped: set[str], held_out: str | None) -> dict[str, float]:
    """A step's figures; none where some of its rollouts were not kept, or there are none."""
    rows = store.rollouts(run, phase="train", step=step.step)
    if not rows or not all(row.saved for row in rows):
        return {}
    groups = groups_of(store.iter_rollouts(run, phase="train", step=step.step))
    trained = [group for number, group in groups.items() if str(number) not in dropped]
    gone = [group for number, group in groups.items() if str(number) in dropped]
    return step_figures(trained, gone, step.step - 1, held_out)


def _merged(figures: Mapping[int, Figures], validations: Mapping[int, Figures]) -> list[Moment]:
    steps = sorted(figures.keys() | validations.keys())
    return [Moment(step, figures.get(step, {}), validations.get(step)) for step in steps]
