"""Attempts without a model: a policy writes the assistant's messages. For baselines, and for traces to learn from.

The agent loop is the same, and so are limits, tools, faults and grades: a script takes the engine's and the chat
format's place, and speaks in messages where a model speaks in tokens. So there is nothing to train on in its rollouts.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from etude.engine.protocol import Sample, SampleRequest
from etude.environment.scenario import Scenario
from etude.environment.tools import Cut
from etude.rollout.agent import Attempt, run_attempt
from etude.rollout.messages import Message
from etude.rollout.parsing import ParsedTurn
from etude.rollout.player import finish
from etude.rollout.rollout import Rollout
from etude.rollout.traces import Trace
from etude.rollout.trajectory import Trajectory

if TYPE_CHECKING:
    from etude.environment.environment import Environment

_CHARACTERS_PER_TOKEN = 4  # of English text, roughly; pass a chat format's `cut` to have a model's own
_CUT = "\n[... cut]"


class Policy(Protocol):
    """Plays instead of a model."""

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        """The next assistant message. messages: the conversation so far, which is all that a policy may go by."""
        ...


def cut_by_characters(text: str, max_tokens: int) -> tuple[str, int, bool]:
    """A `Cut` without a tokenizer: four characters are a token."""
    most = max_tokens * _CHARACTERS_PER_TOKEN
    shown = text if len(text) <= most else (text[: max(most - len(_CUT), 0)] + _CUT)[:most]
    return shown, -(-len(shown) // _CHARACTERS_PER_TOKEN), len(text) > most


async def play(
    environment: Environment, scenario: Scenario, policy: Policy, *, attempt: int = 0, cut: Cut = cut_by_characters
) -> Rollout:
    """Play and grade one attempt. The trajectory is empty; cut shortens tool output as a model would see it.

    What the policy raises comes out as an exception (ValueError and TimeoutError as RuntimeError): it is a program, and
    its bug must not look like a fault of the environment.
    """
    script = _Script(scenario, policy, cut)
    trace_id = f"trace_{uuid.uuid4()}"
    rollout = await run_attempt(
        environment, scenario, script, script, Attempt(key=trace_id, trace_id=trace_id, group="", index=attempt, seed=0)
    )
    rollout.trajectory, rollout.prompt_tokens, rollout.completion_tokens = Trajectory(rows=()), 0, 0
    return await finish(environment, rollout, scenario)


async def traces(
    environment: Environment,
    scenarios: Iterable[Scenario],
    policy: Policy,
    *,
    min_reward: float,
    cut: Cut = cut_by_characters,
) -> list[Trace]:
    """Conversations of the attempts that earned at least min_reward, in the order of the scenarios."""
    rollouts = [await play(environment, scenario, policy, cut=cut) for scenario in scenarios]
    return [
        Trace(rollout.messages, tuple(environment.tool_specs))
        for rollout in rollouts
        if rollout.reward is not None and rollout.reward >= min_reward
    ]


class _Script:
    """Engine and chat format of one attempt. Every message list and every turn counts as one token, 0."""

    stop_ids = frozenset({0})
    version = 0

    def __init__(self, scenario: Scenario, policy: Policy, cut: Cut) -> None:
        self._scenario, self._policy = scenario, policy
        self._messages: Sequence[Message] = ()
        self._turn = Message("assistant", "")
        self.cut = cut

    def start(self, messages: Sequence[Message], tools: Sequence[Any]) -> list[int]:
        self._messages = tuple(messages)
        return [0]

    def extend(
        self, held: Sequence[int], messages: Sequence[Message], new: Sequence[Message], tools: Sequence[Any]
    ) -> list[int]:
        self._messages = tuple(messages)
        return [*held, 0]

    async def sample(self, request: SampleRequest) -> Sample:
        try:
            self._turn = self._policy.next_turn(self._scenario, self._messages)
        except (ValueError, TimeoutError) as error:  # from an engine these would be faults of a rollout
            raise RuntimeError(f"the policy broke: {type(error).__name__}: {error}") from error
        return Sample(tokens=(0,), logprobs=(0.0,), versions=(0,), finish="stop")

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        return ParsedTurn(self._turn.content, self._turn.tool_calls, ())

    def decode(self, tokens: Sequence[int]) -> str:
        return self._turn.content

    def count(self, text: str) -> int:
        return self.cut(text, len(text) + 1)[1]

    def render_assistant(self, message: Message) -> list[int]:
        return [0]

    def open(self, rollout: str) -> None:
        """There is nothing to open, nor to close."""

    def close(self, rollout: str) -> None: ...

    async def aclose(self) -> None: ...
