"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

Severity = Literal["fail", "warn"]


@dataclass(frozen=True, slots=True)
class Finding:
    """severity: "fail" makes the exit code 1. check: what found it ("attack.idk", "leak.prompt"; see docs/check.md),
    which is also the name to silence it by. scenario: the id of one where it shows. message: what is wrong. evidence:
    the attempt's own text, the rewards, the places. advice: what to do. seen, of: in how many of how many scenarios.
    allowed: the reason why it is silenced, else empty."""

    severity: Severity
    check: str
    message: str
    advice: str
    scenario: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seen: int = 0
    of: int = 0
    allowed: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """findings: the worst first. gold: where right answers come from. gold_reward, wrong_reward: means over the
    scenarios checked, of the best right attempt and of wrong ones; None where there is none. checks: those that ran.
    attempts: how many were graded."""

    environment: str
    split: str
    scenarios: int
    attempts: int
    gold: str
    gold_reward: float | None
    wrong_reward: float | None
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def failures(self) -> list[Finding]:
        return [each for each in self.findings if each.severity == "fail" and not each.allowed]

    @property
    def warnings(self) -> list[Finding]:
        return [each for each in self.findings if each.severity == "warn" and not each.allowed]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": not self.failures}


def silenced(findings: Sequence[Finding], allow: Mapping[str, str]) -> tuple[Finding, ...]:
    """Findings with the reasons of those that are allowed; the worst first."""
    marked = [replace(each, allowed=allow.get(each.check, "")) for each in findings]
    return tuple(sorted(marked, key=lambda each: (bool(each.allowed), each.severity != "fail", each.check)))


def shown(value: Any, most: int = 240) -> str:
    """A value of an attempt, short enough for a line of evidence."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 3 :]} ({len(text)} characters)"
