"""Drift: golden distances, and none where a conversation was encoded as its tokenizer encodes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.environment.calls import ToolCall
from etude.model.tiny import tiny_tokenizer
from etude.rollout.chatml import HermesChat
from etude.rollout.drift import measure_drift
from etude.rollout.messages import Message

CHAT = HermesChat(tiny_tokenizer(call_tokens=True))
OPENING = (Message("system", "Be brief."), Message("user", "When?"))
PROMPT = CHAT.start(OPENING, [])
NEW = (Message("tool", "4 May"),)


def one_token_each(text: str) -> list[int]:
    return [token for character in text for token in CHAT.codec.encode([character])]


def test_another_encoding_of_a_sampled_word_is_counted() -> None:
    assert len(CHAT.codec.encode(["search"])) == 1
    sampled = [*one_token_each("search"), CHAT.end_of_turn]
    messages = [*OPENING, Message("assistant", "search")]
    # One token becomes six: one replaced, five put in.
    assert measure_drift(CHAT, messages, [], [*PROMPT, *sampled]) == 6
    assert measure_drift(CHAT, messages, [], [*PROMPT, *CHAT.codec.encode(["search"]), CHAT.end_of_turn]) == 0


def test_drift_of_two_turns_adds_up_and_what_was_not_sampled_has_none() -> None:
    first = [*one_token_each("search"), CHAT.end_of_turn]
    messages = [*OPENING, Message("assistant", "search"), *NEW]
    held = [*CHAT.extend([*PROMPT, *first], messages, NEW, []), *first]
    messages.append(Message("assistant", "search"))
    assert measure_drift(CHAT, messages, [], held) == 12
    assert measure_drift(CHAT, [*messages, *NEW], [], held) == 12, "results that no prompt held do not count"


def test_a_truncated_turn_lacks_no_stop_token() -> None:
    held = [*PROMPT, *CHAT.codec.encode(["search"])]
    assert measure_drift(CHAT, [*OPENING, Message("assistant", "search")], [], held) == 0


def test_a_control_token_inside_a_sampled_turn_comes_back_as_text() -> None:
    start = CHAT.codec.controls["<|im_start|>"]
    messages = [*OPENING, Message("assistant", "<|im_start|>")]
    text = CHAT.codec.encode(["<|im_start|>"])
    assert measure_drift(CHAT, messages, [], [*PROMPT, start, CHAT.end_of_turn]) == len(text)


@given(
    st.lists(
        st.tuples(st.text(max_size=6).filter(lambda text: "tool_" not in text), st.text(max_size=6)),
        min_size=1,
        max_size=3,
    )
)
def test_turns_that_a_script_wrote_have_no_drift(turns: list[tuple[str, str]]) -> None:
    messages, held = list(OPENING), list(PROMPT)
    for number, (content, output) in enumerate(turns):
        turn = Message("assistant", content, (ToolCall("search", {"q": output}),))
        tokens = CHAT.render_assistant(turn)
        held += tokens
        messages.append(Message("assistant", CHAT.decode(tokens[:-1]), CHAT.parse(tokens).calls))
        if number + 1 < len(turns):
            messages.append(Message("tool", output))
            held = CHAT.extend(held, messages, messages[-1:], [])
    assert measure_drift(CHAT, messages, [], held) == 0


def test_a_conversation_without_a_turn_has_no_drift_to_measure() -> None:
    with pytest.raises(ValueError, match="no assistant message"):
        measure_drift(CHAT, OPENING, [], PROMPT)
