"""What a tool is told besides the model's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etude.environment.scenario import Scenario


@dataclass
class ToolContext:
    """Injected into the parameter of a tool that is annotated with this class; the model never sees it.

    scenario: the row being played. trace_id: the same for every call and grade of one rollout. state: what the
    environment remembers during one rollout, shared by its parallel calls, which run in threads; keys that start
    with "_" are private (not saved, not shown to graders), all others hold JSON values. call_id: of this call alone.
    """

    scenario: Scenario
    trace_id: str
    state: dict[str, Any]
    call_id: str = ""
