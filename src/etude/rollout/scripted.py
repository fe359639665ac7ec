"""Attempts by whoever speaks in messages rather than in tokens: a script, or a model behind an endpoint.

The agent loop is the same, and so are limits, tools, faults and grades: a `Seat` takes the engine's and the chat
format's place. There is nothing to train on in such rollouts.
"""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from etude.engine.protocol import Engine, Finish, Sample, SampleRequest
from etude.environment.calls import ToolCall
from etude.environment.scenario import Scenario
from etude.environment.tools import Cut
from etude.rollout.agent import Attempt, run_attempt
from etude.rollout.chat import ChatFormat
from etude.rollout.clock import Clock
from etude.rollout.messages import Message
from etude.rollout.parsing import Failure, ParsedTurn
from etude.rollout.player import Player, finish
from etude.rollout.rollout import Rollout
from etude.rollout.traces import Trace
from etude.rollout.trajectory import Trajectory

if TYPE_CHECKING:
    from etude.environment.environment import Environment

_CHARACTERS_PER_TOKEN = 4  # of English text, roughly; pass a chat format's `cut` to have a model's own
_CUT = "\n[... cut]"


class Policy(Protocol):
    """A script that plays instead of a model."""

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message | Awaitable[Message]:
        """The next assistant message. messages: the conversation so far, which is all that a policy may go by: it plays
        many attempts, also at once."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What one turn took. prompt_tokens: of the whole conversation before it. completion_tokens: all that was sampled;
    hidden_tokens of them (reasoning) do not come back in later prompts. seconds: the model's time. cost: USD, None
    where there are no prices. The sums of a rollout are its `usage`: requests, prompt_tokens (as an endpoint bills
    them: every turn's whole prompt), completion_tokens, seconds, and cost where every turn has one."""

    prompt_tokens: int
    completion_tokens: int
    hidden_tokens: int = 0
    seconds: float = 0.0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What a `Voice` is asked. messages: the conversation so far. max_tokens: of this turn. clock: the attempt's, to be
    stopped while waiting for what is not the attempt's doing."""

    scenario: Scenario
    messages: Sequence[Message]
    tools: Sequence[Any]
    max_tokens: int
    temperature: float
    seed: int
    clock: Clock


@dataclass(frozen=True, slots=True)
class Turn:
    """What a `Voice` says. failures: calls that could not be read, in order. finish: "length" where max_tokens cut it.
    usage: None where nothing counts tokens; then token limits do not apply (`Voice.counts_tokens` false), or go by
    characters."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    failures: tuple[Failure, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None


class Voice(Protocol):
    """Who plays one attempt; it may keep what it likes of the attempt between turns."""

    @property
    def counts_tokens(self) -> bool:
        """Whether the environment's token limits mean anything."""
        ...

    async def next_turn(self, request: TurnRequest) -> Turn:
        """Raises EngineFault where the attempt should fault, TimeoutError only where its clock has run out; whatever
        else it raises stops the run."""
        ...


Voices = Callable[[Scenario], Voice]  # called once an attempt


def cut_by_characters(text: str, max_tokens: int) -> tuple[str, int, bool]:
    """A `Cut` without a tokenizer: four characters are a token."""
    most = max_tokens * _CHARACTERS_PER_TOKEN
    shown = text if len(text) <= most else (text[: max(most - len(_CUT), 0)] + _CUT)[:most]
    return shown, -(-len(shown) // _CHARACTERS_PER_TOKEN), len(text) > most


def voices_of(policy: Policy) -> Voices:
    """A policy plays every attempt alike. What it raises comes out as an exception (ValueError and TimeoutError as
    RuntimeError): it is a program, and its bug must not look like a fault of the environment."""
    return lambda scenario: _Script(policy)


async def play(
    environment: Environment, scenario: Scenario, policy: Policy, *, attempt: int = 0, cut: Cut = cut_by_characters
) -> Rollout:
    """Play and grade one attempt of a policy. The trajectory is empty; cut shortens tool output as a model would see
    it. Raises what the policy raises, as `voices_of` says."""
    trace_id = f"trace_{uuid.uuid4()}"
    numbered = Attempt(key=trace_id, trace_id=trace_id, group="", index=attempt, seed=0)
    rollout = await _play(environment, scenario, voices_of(policy)(scenario), numbered, cut)
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


async def _play(environment: Environment, scenario: Scenario, voice: Voice, attempt: Attempt, cut: Cut) -> Rollout:
    """One try, ungraded."""
    clock = Clock(environment.limits.max_seconds)
    seat = Seat(scenario, voice, clock, cut)
    return seat.settle(await run_attempt(environment, scenario, seat, seat, attempt, clock))


class Seat:
    """Engine and chat format of one attempt. Tokens are all 0, and only their number means something: of a voice that
    counts tokens, what it told of the turns before and characters of what is new; else one a turn."""

    stop_ids = frozenset({0})
    version = 0

    def __init__(self, scenario: Scenario, voice: Voice, clock: Clock, cut: Cut) -> None:
        self._scenario, self._voice, self._clock = scenario, voice, clock
        self._messages: Sequence[Message] = ()
        self._tools: Sequence[Any] = ()
        self._turns: list[Turn] = []
        self.cut = cut

    def start(self, messages: Sequence[Message], tools: Sequence[Any]) -> list[int]:
        self._messages, self._tools = tuple(messages), tools
        return [0] * self._length(messages, json.dumps(tools) if tools else "")

    def extend(
        self, held: Sequence[int], messages: Sequence[Message], new: Sequence[Message], tools: Sequence[Any]
    ) -> list[int]:
        self._messages = tuple(messages)
        usage = self._turns[-1].usage
        known = len(held)
        if usage is not None:
            known = usage.prompt_tokens + usage.completion_tokens - usage.hidden_tokens
        return [0] * (known + self._length(new))

    async def sample(self, request: SampleRequest) -> Sample:
        turn = await self._voice.next_turn(
            TurnRequest(
                self._scenario,
                self._messages,
                self._tools,
                request.max_tokens,
                request.temperature,
                request.seed,
                self._clock,
            )
        )
        self._turns.append(turn)
        tokens = self._sampled(turn)
        return Sample((0,) * tokens, (0.0,) * tokens, (0,) * tokens, turn.finish)

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        turn = self._turns[-1]
        return ParsedTurn(turn.content, turn.calls, turn.failures)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._turns[-1].content

    def count(self, text: str) -> int:
        return self.cut(text, len(text) + 1)[1]

    def render_assistant(self, message: Message) -> list[int]:
        return [0]

    def open(self, rollout: str) -> None:
        """There is nothing to open, nor to close."""

    def close(self, rollout: str) -> None: ...

    async def aclose(self) -> None: ...

    def settle(self, rollout: Rollout) -> Rollout:
        """Takes the zeros out of a rollout, and puts in what its turns took."""
        used = [turn.usage for turn in self._turns if turn.usage is not None]
        rollout.trajectory = Trajectory(rows=())
        if not self._voice.counts_tokens:
            rollout.prompt_tokens = rollout.completion_tokens = 0
        elif used and len(used) == len(self._turns):
            carried = sum(each.completion_tokens - each.hidden_tokens for each in used[:-1])
            rollout.prompt_tokens = max(0, used[-1].prompt_tokens - carried)
            rollout.completion_tokens = sum(each.completion_tokens for each in used)
        if used:
            rollout.usage = {
                "requests": float(len(used)),
                "prompt_tokens": float(sum(each.prompt_tokens for each in used)),
                "completion_tokens": float(sum(each.completion_tokens for each in used)),
                "seconds": sum(each.seconds for each in used),
            }
            costs = [each.cost for each in used if each.cost is not None]
            if len(costs) == len(self._turns):
                rollout.usage["cost"] = sum(costs)
        return rollout

    def _length(self, messages: Sequence[Message], more: str = "") -> int:
        if not self._voice.counts_tokens:
            return 1
        return max(1, sum(map(self.count, [more, *(message.content for message in messages)])))

    def _sampled(self, turn: Turn) -> int:
        if not self._voice.counts_tokens:
            return 1
        if turn.usage is not None:
            return max(1, turn.usage.completion_tokens)
        calls = (f"{call.name}{json.dumps(call.arguments)}" for call in turn.calls)
        return max(1, sum(map(self.count, [turn.content, *calls])))


class _Idle(Seat):
    """The engine of a player whose attempts each have a seat of their own."""

    def __init__(self) -> None:
        self.cut = cut_by_characters


@dataclass
class MessagePlayer(Player):
    """A `Player` for whoever speaks in messages: as many at once, with the same retries and seeds. voices: gives each
    try its `Voice`. cut: shortens tool output. figures: of `used`."""

    engine: Engine = field(init=False, default_factory=_Idle)
    chat: ChatFormat = field(init=False, default_factory=_Idle)
    voices: Voices = field(kw_only=True)
    cut: Cut = field(default=cut_by_characters, kw_only=True)
    figures: Callable[[], Mapping[str, float]] = field(default=dict, kw_only=True)

    def used(self) -> Mapping[str, float]:
        return self.figures()

    async def _play(self, scenario: Scenario, attempt: Attempt) -> Rollout:
        return await _play(self.environment, scenario, self.voices(scenario), attempt, self.cut)


class _Script:
    """The voice of a policy."""

    counts_tokens = False

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def next_turn(self, request: TurnRequest) -> Turn:
        try:
            said = self._policy.next_turn(request.scenario, request.messages)
            message = await said if inspect.isawaitable(said) else said
        except (ValueError, TimeoutError) as error:  # from an engine these would be faults of a rollout
            raise RuntimeError(f"the policy broke: {type(error).__name__}: {error}") from error
        return Turn(message.content, message.tool_calls)
