"""Traces: what is imitated is exactly what the model would have sampled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from etude.environment.calls import ToolCall
from etude.errors import DataError
from etude.model.tiny import tiny_tokenizer
from etude.rollout.chat import chat_format
from etude.rollout.messages import Message
from etude.rollout.traces import Trace, load_traces, rows_from, save_traces, trace_row

SPEC = {"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}
CALL = ToolCall("f", {"x": "ü <|im_end|>"}, "call_0")
CONVERSATION = Trace(
    (
        Message("system", "Be brief."),
        Message("user", "What is x?"),
        Message("assistant", "", (CALL,)),
        Message("tool", "a result with <|im_start|> in it", call_id="call_0", name="f"),
        Message("assistant", "It is ü."),
        Message("user", "Thanks, this is after the last turn."),
    ),
    (SPEC,),
)


def test_the_mask_is_true_on_assistant_turns_and_their_stop_tokens_only() -> None:
    chat = chat_format(tiny_tokenizer())
    row = trace_row(chat, CONVERSATION)
    turns = [chat.render_assistant(CONVERSATION.messages[index]) for index in (2, 4)]
    assert row.tokens[row.action_mask].tolist() == [token for turn in turns for token in turn]
    starts = np.flatnonzero(np.diff(row.action_mask.astype(int)) == 1)
    assert len(starts) == 2
    assert row.action_mask[-1]
    assert np.isnan(row.logprobs).all()


def test_the_row_is_what_a_rollout_would_have_held() -> None:
    chat = chat_format(tiny_tokenizer())
    messages = CONVERSATION.messages
    first = chat.start(messages[:2], [SPEC])
    held = [*first, *chat.render_assistant(messages[2])]
    held = [*chat.extend(held, messages[:4], messages[3:4], [SPEC]), *chat.render_assistant(messages[4])]
    assert trace_row(chat, CONVERSATION).tokens.tolist() == held


def test_files_keep_traces(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    save_traces(file, [CONVERSATION, CONVERSATION])
    assert load_traces(file) == [CONVERSATION, CONVERSATION]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not a trace"),
        ("[]", "an object with a list of messages"),
        ('{"messages": 3}', "list of messages"),
        (json.dumps({"messages": [{"role": "robot"}]}), "role must be one of"),
        (json.dumps({"messages": [{"role": "assistant", "tool_calls": [{}]}]}), "function"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text('{"messages": []}\n' + line + "\n")
    with pytest.raises(DataError, match=rf"traces\.jsonl:2: .*{reason}"):
        load_traces(file)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    file.write_text("\n")
    with pytest.raises(DataError, match="holds no traces"):
        load_traces(file)


def test_long_traces_are_dropped_and_counted() -> None:
    chat = chat_format(tiny_tokenizer())
    short = Trace((Message("user", "a"), Message("assistant", "b")), ())
    rows, dropped = rows_from(chat, [CONVERSATION, short], max_tokens=50)
    assert (len(rows), dropped) == (1, 1)


def test_a_trace_without_an_assistant_is_refused() -> None:
    with pytest.raises(ValueError, match="assistant turn"):
        trace_row(chat_format(tiny_tokenizer()), Trace((Message("user", "a"),), ()))
