"""How a rollout ended, and whose doing it was. A fault is never a reward."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """The five ends of a rollout. Only `OK` and `POLICY_FAULT` carry a reward."""

    OK = "ok"
    POLICY_FAULT = "policy_fault"  # the model's own failure ended the attempt
    ENV_FAULT = "env_fault"  # a tool or the environment broke: started again, then discarded, never scored
    GRADER_FAULT = "grader_fault"  # the grader broke: likewise
    CANCELLED = "cancelled"

    @property
    def scored(self) -> bool:
        return self in (Outcome.OK, Outcome.POLICY_FAULT)


class Stop(StrEnum):
    """What ended the agent loop."""

    ANSWERED = "answered"  # a final tool was called, or (where there is none) a turn without a call
    OUT_OF_TURNS = "out_of_turns"
    OUT_OF_TOKENS = "out_of_tokens"  # the rollout's whole token budget
    TRUNCATED = "truncated"  # one turn reached its token limit: it is not parsed
    OUT_OF_CALLS = "out_of_calls"  # the hard budget of tool calls
    UNPARSABLE_CALL = "unparsable_call"  # only with on_bad_call="end", like the next two
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    NO_CALL = "no_call"  # a turn without a call, where a final tool was required (on_bad_call="end")
    TIME_LIMIT = "time_limit"
    TOOL_FAULT = "tool_fault"
    SETUP_FAULT = "setup_fault"
    ENGINE_FAULT = "engine_fault"
    CANCELLED = "cancelled"
