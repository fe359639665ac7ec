"""A model behind an OpenAI-compatible endpoint plays in the agent loop, by the limits and the rules of every other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from etude.engine.remote.client import ChatClient, Completion
from etude.environment.calls import ToolCall
from etude.environment.scenario import Scenario
from etude.rollout.messages import Message
from etude.rollout.parsing import Failure, ParseFailure, parse_arguments
from etude.rollout.scripted import Turn, TurnRequest, Usage, Voices

UNREADABLE = "unreadable_arguments"  # key under which a model is shown what it wrote


def endpoint_voices(client: ChatClient) -> Voices:
    """For a `MessagePlayer`. The client is the caller's to close."""

    def voice(scenario: Scenario) -> EndpointVoice:
        return EndpointVoice(client)

    return voice


class EndpointVoice:
    """One attempt. It keeps the conversation as the endpoint knows it, which says more than ours: the ids of calls that
    could not be read, which their error texts have to answer.

    The attempt's clock counts the seconds of requests that were answered, not the waiting for a turn at the endpoint,
    nor what failed and was tried again."""

    counts_tokens = True

    def __init__(self, client: ChatClient) -> None:
        self._client = client
        self._sent: list[Mapping[str, Any]] = []  # the conversation in OpenAI's form
        self._seen = 0  # how many of the attempt's messages it holds
        self._unread: list[str] = []  # ids of the last turn's calls that could not be read

    async def next_turn(self, request: TurnRequest) -> Turn:
        """Raises what `ChatClient.complete` raises, and TimeoutError where the attempt's time is over."""
        self._sent += [self._wire(message) for message in request.messages[self._seen :]]
        with request.clock.stopped():
            completion = await self._client.complete(
                self._sent,
                request.tools,
                max_tokens=request.max_tokens,
                temperature=request.temperature,
                seed=request.seed,
            )
        request.clock.spend(0.0 if completion.cached else completion.seconds)
        self._seen = len(request.messages) + 1  # the loop adds the turn to its own
        return self._read(completion)

    def _wire(self, message: Message) -> dict[str, Any]:
        """A message of the loop that is new: never the assistant's."""
        if message.role != "tool":
            return {"role": message.role, "content": message.content}
        call_id = message.call_id or (self._unread.pop(0) if self._unread else "")
        return {"role": "tool", "tool_call_id": call_id, "content": message.content}

    def _read(self, completion: Completion) -> Turn:
        usage = _usage(completion)
        if completion.finish_reason == "length":  # cut in the middle: the loop does not look at its calls
            return Turn(completion.content, finish="length", usage=usage)
        calls, failures, sent = _calls(completion.message.get("tool_calls", []))
        self._unread = [wire["id"] for wire, read in zip(sent, calls, strict=True) if read is None]
        self._sent.append({**completion.message, "tool_calls": sent} if sent else completion.message)
        return Turn(completion.content, tuple(call for call in calls if call is not None), failures, usage=usage)


def _calls(
    wire: Sequence[Mapping[str, Any]],
) -> tuple[list[ToolCall | None], tuple[Failure, ...], list[dict[str, Any]]]:
    """Calls (None where one could not be read), what was wrong with those, and all as they are sent back: endpoints
    refuse a history with arguments that are no JSON, so the model is shown its text inside of some."""
    calls: list[ToolCall | None] = []
    failures: list[Failure] = []
    sent: list[dict[str, Any]] = []
    for call in wire:
        name, text = call["function"]["name"], call["function"]["arguments"]
        arguments = parse_arguments(name, text)
        if not name.strip():
            arguments = Failure(ParseFailure.BAD_NAME, "a call needs the name of a function")
        if isinstance(arguments, Failure):
            failures.append(arguments)
            calls.append(None)
            shown = {"name": name.strip() or "unknown", "arguments": json.dumps({UNREADABLE: text})}
            sent.append({**call, "function": shown})
        else:
            calls.append(ToolCall(name, arguments, call["id"]))
            sent.append(dict(call))
    return calls, tuple(failures), sent


def _usage(completion: Completion) -> Usage | None:
    if completion.prompt_tokens is None or completion.completion_tokens is None:
        return None
    return Usage(
        completion.prompt_tokens,
        completion.completion_tokens,
        min(completion.hidden_tokens, completion.completion_tokens),
        completion.seconds,
        completion.cost,
    )
