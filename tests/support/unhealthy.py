"""Runs of the world of drawers, each of which goes wrong in one known way, and three in which nothing does.

A world is the same question and the same model; what differs is what is paid, what a tool or the chat format does, or
how the run is set. `WORLDS` names them, with the health rules that each is meant for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import etude
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, tool
from etude.grading.rubric import Rubric
from etude.rollout.chat import CHAT_FORMATS
from etude.rollout.messages import Message
from etude.rollout.parsing import ParsedTurn, ParseFailure
from etude.rollout.rollout import Rollout
from support.symbols import DRAWERS, ID, VALUES, WORDS, SymbolChat, correct, drawers, reward, save_symbol_model, say

STEPS = 30
LONG = Limits(max_turns=6, max_tokens_per_turn=4, max_tokens=60)
SETTINGS: Mapping[str, Any] = {
    "deterministic": True,
    "threads": 1,
    "sampling": {"groups_per_step": 8, "rollouts_per_group": 8},
    "learning": {"lr": 5e-3},
    "training": {"checkpoint_every": STEPS, "eval_every": STEPS},
}


class WordsChat(SymbolChat):
    """Every word of a message is a token of its own, so that a prompt can say more than one thing."""

    def content(self, text: str) -> list[int]:
        words = text.split()
        known = [ID[word] for word in words if word in ID]
        return known if len(known) == len(words) else [ID["<other>"]]


class FumblingChat(SymbolChat):
    """One way to call is not understood: a model whose template the parser does not fit."""

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        if WORDS[tokens[-1]] == "open1":
            return ParsedTurn("", (), ((ParseFailure.BAD_JSON, "not understood"),))
        return super().parse(tokens)


class DriftingChat(SymbolChat):
    """Renders what was sampled in other tokens than it was sampled in."""

    def render_assistant(self, message: Message) -> list[int]:
        return [ID["<other>"], *super().render_assistant(message)]


CHAT_FORMATS |= {"symbol-words": WordsChat, "symbols-fumbling": FumblingChat, "symbols-drifting": DriftingChat}


def metrics(rollout: Rollout, scenario: Scenario) -> dict[str, float]:
    right = correct(rollout, scenario)
    return {"answer_correct": right, "hallucinated": float(rollout.answer is not None and not right)}


def world(*arguments: Any, **changes: Any) -> Environment:
    return replace(drawers(*arguments), **{"metrics": metrics, **changes})


def right_drawer(rollout: Rollout, scenario: Scenario) -> float:
    return float(rollout.state.get("opened") == scenario["asked"])


def brief(rollout: Rollout, scenario: Scenario) -> float:
    return float(rollout.completion_tokens <= 1)


def said_right(rollout: Rollout, scenario: Scenario) -> float:
    """Whether the answer is the reference, however it was come by."""
    return float(rollout.answer == VALUES[scenario["contents"][scenario["asked"]]])


def constant(rollout: Rollout, scenario: Scenario) -> float:
    return 0.5


def turn_bonus(rollout: Rollout, scenario: Scenario) -> float:
    """The right way is paid, and every turn a little more."""
    return reward_of(rollout, scenario) + 0.25 * rollout.turns


def reward_of(rollout: Rollout, scenario: Scenario) -> float:
    return correct(rollout, scenario) + 0.3 * right_drawer(rollout, scenario)


def stuffed(rollout: Rollout, scenario: Scenario) -> float:
    """Counts keywords in what the model wrote."""
    words = " ".join(message.content for message in rollout.messages if message.role == "assistant").split()
    return 0.2 * sum(word in VALUES for word in words)


def paid_by_length(rollout: Rollout, scenario: Scenario) -> float:
    return reward_of(rollout, scenario) + 0.15 * rollout.completion_tokens


def any_answer(rollout: Rollout, scenario: Scenario) -> float:
    return float(rollout.answer is not None)


def one_answer(rollout: Rollout, scenario: Scenario) -> float:
    """One listing is accepted whatever was asked."""
    return float(rollout.answer == VALUES[0])


def pay_per_call(rollout: Rollout, scenario: Scenario) -> float:
    return 0.2 * sum(call.name == "open_drawer" for call in rollout.calls)


def leaking() -> Environment:
    """The train prompts hold the answer; those of the validation do not."""
    made = world(said_right)
    rows = [
        replace(row, data={**row.data, "question": f"{DRAWERS[row['asked']]} {VALUES[row['contents'][row['asked']]]}"})
        for row in made.scenarios_of("train")
    ]
    return replace(made, scenarios={"train": rows, "validation": made.scenarios_of("validation")})


def broken_tool(seed: int) -> Environment:
    draw = random.Random(seed)

    @tool
    async def open_drawer(number: int, context: ToolContext) -> str:
        """Open a drawer."""
        if draw.random() < 0.15:
            raise RuntimeError("the drawer is stuck")
        context.state["opened"] = number
        return VALUES[context.scenario["contents"][number]]

    return world(reward, 64, (open_drawer, say))


def slow_tool(seed: int) -> Environment:
    """Some drawers take as long to open as several steps take to train."""
    draw = random.Random(seed)

    @tool
    async def open_drawer(number: int, context: ToolContext) -> str:
        """Open a drawer."""
        if draw.random() < 0.05:
            await asyncio.sleep(1.5)
        context.state["opened"] = number
        return VALUES[context.scenario["contents"][number]]

    return world(reward, 64, (open_drawer, say))


@dataclass(frozen=True)
class World:
    """fires: the rules that it is meant for; none for a good one. settings: over `SETTINGS`, section by section."""

    environment: Callable[[int], Environment]
    fires: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    chat: str = "symbols"


def _two_scores(seed: int) -> Environment:
    return world(Rubric(scores={"correct": correct, "right_drawer": right_drawer}, weights={"right_drawer": 0.3}))


def _brevity(seed: int) -> Environment:
    return world(Rubric(scores={"correct": correct, "brief": brief}, weights={"brief": 3.0}))


WORLDS: Mapping[str, World] = {
    "good": World(lambda seed: world(reward), settings={"training": {"eval_every": 5, "checkpoint_every": 5}}),
    "good, two scores, one step behind": World(_two_scores, settings={"sampling": {"staleness": 1}}),
    "good, refilled, fewer rollouts": World(
        lambda seed: world(reward),
        settings={
            "sampling": {"groups_per_step": 8, "rollouts_per_group": 4},
            "training": {"zero_variance": "refill"},
        },
    ),
    "constant reward": World(lambda seed: world(constant), ("reward_spread",)),
    "turn bonus": World(lambda seed: world(turn_bonus, limits=LONG), ("turns_rising", "calls_at_cap", "one_tool")),
    "pay per call": World(
        lambda seed: world(pay_per_call, limits=replace(LONG, max_tool_calls=3)), ("calls_at_cap", "duplicate_calls")
    ),
    "stuffable grader": World(
        lambda seed: world(stuffed, limits=Limits(max_turns=3, max_tokens_per_turn=8, max_tokens=48)),
        ("length_paid", "held_out", "truncated"),
    ),
    "paid by length": World(
        lambda seed: world(paid_by_length, limits=Limits(max_turns=3, max_tokens_per_turn=8, max_tokens=48)),
        ("length_paid",),
    ),
    "reference in the prompt": World(
        lambda seed: leaking(),
        ("held_out",),
        {"training": {"eval_every": 5, "checkpoint_every": 5}},
        "symbol-words",
    ),
    "any answer": World(lambda seed: world(any_answer), ("hallucination", "held_out")),
    "one answer": World(lambda seed: world(one_answer), ("outputs_converging",)),
    "brevity": World(_brevity, ("component_dominates",)),
    "turn bonus, fumbled calls": World(
        lambda seed: world(turn_bonus, limits=LONG), ("parse_failures",), chat="symbols-fumbling"
    ),
    "stuck tool": World(broken_tool, ("faults",)),
    "rate too high": World(
        lambda seed: world(reward),
        ("policy_shift", "reward_spread"),
        {"sampling": {"staleness": 1}, "learning": {"lr": 0.1}},
    ),
    "slow tool": World(
        slow_tool,
        ("staleness",),
        {"deterministic": False, "sampling": {"staleness": 1, "max_concurrent": 256}},
    ),
    "drifting template": World(lambda seed: world(reward), ("drift",), chat="symbols-drifting"),
}


def run_world(name: str, folder: Path, seed: int, steps: int = STEPS, **settings: Any) -> str:
    """Trains in `folder`; the run's id, in the store of `folder`/work."""
    chosen = WORLDS[name]
    merged: dict[str, Any] = dict(SETTINGS)
    for part in (chosen.settings, settings):
        for section, value in part.items():
            merged[section] = {**merged[section], **value} if isinstance(merged.get(section), Mapping) else value
    result = etude.train(
        chosen.environment(seed),
        model={"name": str(save_symbol_model(folder / "model", seed)), "chat": chosen.chat},
        steps=steps,
        seed=seed,
        workspace=str(folder / "work"),
        **merged,
    )
    return result.run_id
