"""Etude: reinforcement fine-tuning for tool-using agents, on your own machine.

`import etude` imports no torch: what needs it is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Environment": "etude.environment.environment",
    "Limits": "etude.environment.environment",
    "Scenario": "etude.environment.scenario",
    "load_scenarios": "etude.environment.scenario",
    "Message": "etude.rollout.messages",
    "Tool": "etude.environment.tools",
    "ToolCall": "etude.environment.calls",
    "ToolContext": "etude.environment.context",
    "ToolError": "etude.environment.tools",
    "tool": "etude.environment.tools",
    "Rubric": "etude.grading.rubric",
    "Rollout": "etude.rollout.rollout",
    "train": "etude.api",
    "sft": "etude.api",
    "evaluate": "etude.api",
    "regrade": "etude.api",
}
__all__ = ["__version__", *_WHERE]  # noqa: PLE0604  # names that __getattr__ finds

if TYPE_CHECKING:
    from etude.api import evaluate as evaluate
    from etude.api import regrade as regrade
    from etude.api import sft as sft
    from etude.api import train as train
    from etude.environment.calls import ToolCall as ToolCall
    from etude.environment.context import ToolContext as ToolContext
    from etude.environment.environment import Environment as Environment
    from etude.environment.environment import Limits as Limits
    from etude.environment.scenario import Scenario as Scenario
    from etude.environment.scenario import load_scenarios as load_scenarios
    from etude.environment.tools import Tool as Tool
    from etude.environment.tools import ToolError as ToolError
    from etude.environment.tools import tool as tool
    from etude.grading.rubric import Rubric as Rubric
    from etude.rollout.messages import Message as Message
    from etude.rollout.rollout import Rollout as Rollout


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'etude' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
