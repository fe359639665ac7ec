"""All rules by name, and the state that tells an alert once until it clears."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from etude.training.health.behaviour_rules import BEHAVIOUR_RULES
from etude.training.health.history import History, Moment
from etude.training.health.machinery_rules import MACHINERY_RULES
from etude.training.health.reward_rules import REWARD_RULES
from etude.training.health.rule import Alert, Rule

RULES: Mapping[str, Rule] = {rule.name: rule for rule in (*REWARD_RULES, *BEHAVIOUR_RULES, *MACHINERY_RULES)}
CLEAR_AFTER = 3  # steps in a row without the finding, before it may be told again
WHOLE = ("steps", "window")  # thresholds that count


@dataclass
class Monitor:
    """Sees a run's moments in order, and says what is new. The same moments give the same alerts, whenever they are
    shown: so a resumed run goes on where it was by being shown what it had.

    held_out, thresholds: as `HealthConfig` has them."""

    held_out: str | None = None
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = History(self.held_out)
        self._quiet: dict[str, int] = {}  # by active rule: steps since it last found something

    @property
    def active(self) -> frozenset[str]:
        """Rules whose alert was told and has not cleared."""
        return frozenset(self._quiet)

    def see(self, moment: Moment) -> list[Alert]:
        """What is found at this moment and was not known."""
        self.history.moments.append(moment)
        return [alert for rule in RULES.values() if (alert := self._look(rule, moment.step)) is not None]

    def _look(self, rule: Rule, step: int) -> Alert | None:
        limits = rule.limits(self.thresholds.get(rule.name, {}))
        finding = rule.check(self.history, limits)
        if finding is None:
            if rule.name in self._quiet:
                self._quiet[rule.name] += 1
                if self._quiet[rule.name] >= CLEAR_AFTER:
                    del self._quiet[rule.name]
            return None
        known = rule.name in self._quiet
        self._quiet[rule.name] = 0
        if known:
            return None
        return Alert(rule.name, rule.level, step, finding.message, dict(finding.evidence), rule.advice)


def check_names(pause_on: list[str], thresholds: Mapping[str, Mapping[str, float]]) -> None:
    """Raises ValueError for a rule or a threshold that there is not, with those that there are; and for a count that is
    not one."""
    known = ", ".join(RULES)
    for name in [*pause_on, *thresholds]:
        if name not in RULES and not (name == "all" and name in pause_on):
            raise ValueError(f"there is no health rule {name!r} (there are: {known})")
    for rule, changed in thresholds.items():
        for name, value in changed.items():
            if name not in RULES[rule].thresholds:
                names = ", ".join(RULES[rule].thresholds)
                raise ValueError(f"the health rule {rule} has no threshold {name!r} (it has: {names})")
            if name in WHOLE and (value != int(value) or value < 1):
                raise ValueError(f"{rule}.{name} is {value}: give a whole number of steps, from 1")
