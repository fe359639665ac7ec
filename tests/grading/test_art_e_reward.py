"""Golden values: every row of ART·E's reward table, its edge cases, and the article's ablations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.grading.art_e import (
    ArtEEnd,
    ArtEFacts,
    ArtESettings,
    art_e_reward,
    binary_reward,
    source_scores,
)

CONTINUE = ArtESettings(on_bad_call="continue")
END = ArtESettings(on_bad_call="end")
# found, read, no invalid id, right sources: partial credit 0.4; correct: 1 + 0.3 + 0.1/1 + 0.1·(1 − 3/10) = 1.47
RIGHT = ArtEFacts(
    end=ArtEEnd.ANSWERED,
    answerable=True,
    correct=True,
    declined=False,
    found_right_mail=True,
    read_right_mail=True,
    read_invalid_id=False,
    sources_correct=True,
    num_sources=1,
    bad_calls=0,
    turns=3,
    max_turns=10,
)
WRONG = replace(RIGHT, correct=False)
DECLINED = replace(WRONG, declined=True)
OUT_OF_TURNS = replace(WRONG, end=ArtEEnd.NO_ANSWER, turns=10)
NOTHING = {"found_right_mail": False, "read_right_mail": False, "read_invalid_id": True, "sources_correct": False}


@pytest.mark.parametrize(
    ("facts", "reward"),
    [
        (RIGHT, 1.47),
        (replace(RIGHT, turns=1), 1.49),
        (replace(RIGHT, turns=10), 1.40),
        (replace(RIGHT, num_sources=2), 1.42),
        (replace(RIGHT, sources_correct=False, num_sources=4), 1.095),
        (replace(RIGHT, sources_correct=False, num_sources=0), 1.07),
        (replace(RIGHT, found_right_mail=False, read_right_mail=False, read_invalid_id=True), 1.47),
        (WRONG, -0.6),
        (replace(WRONG, sources_correct=False), -0.7),
        (replace(WRONG, **NOTHING), -1.0),
        (DECLINED, 0.4),
        (replace(DECLINED, **NOTHING), 0.0),
        (OUT_OF_TURNS, 0.4),
        (replace(OUT_OF_TURNS, **{**NOTHING, "found_right_mail": True}), 0.1),
    ],
)
def test_rows_that_do_not_depend_on_bad_calls(facts: ArtEFacts, reward: float) -> None:
    assert art_e_reward(facts, CONTINUE) == pytest.approx(reward)
    assert art_e_reward(facts, END) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("end", "worst"),
    [
        (ArtEEnd.UNPARSABLE_CALL, -2.0),
        (ArtEEnd.NO_CALL, -2.0),
        (ArtEEnd.UNKNOWN_TOOL, -1.9),
        (ArtEEnd.BAD_ARGUMENTS, -1.8),
    ],
)
def test_an_attempt_ended_by_a_bad_call(end: ArtEEnd, worst: float) -> None:
    facts = replace(WRONG, end=end, bad_calls=1)
    assert art_e_reward(facts, END) == pytest.approx(worst + 0.4)
    assert art_e_reward(replace(facts, **NOTHING), END) == pytest.approx(worst)


@pytest.mark.parametrize(
    ("facts", "reward"),
    [
        (replace(RIGHT, bad_calls=1), 1.27),
        (replace(RIGHT, bad_calls=3), 0.87),
        (replace(DECLINED, bad_calls=2), 0.0),
        (replace(WRONG, bad_calls=6), -1.8),
        (replace(WRONG, bad_calls=7), -2.0),
        (replace(WRONG, bad_calls=1000), -2.0),
        (replace(OUT_OF_TURNS, bad_calls=10), -1.6),
    ],
)
def test_each_bad_call_costs_a_little_and_never_below_the_floor(facts: ArtEFacts, reward: float) -> None:
    assert art_e_reward(facts, CONTINUE) == pytest.approx(reward)


def test_rules_for_bad_calls_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match=r"unknown_tool.*on_bad_call: end"):
        art_e_reward(replace(WRONG, end=ArtEEnd.UNKNOWN_TOOL, bad_calls=1), CONTINUE)
    with pytest.raises(ConfigError, match=r"2 bad calls.*on_bad_call: continue"):
        art_e_reward(replace(RIGHT, bad_calls=2), END)


UNANSWERABLE = replace(
    DECLINED, answerable=False, found_right_mail=False, read_right_mail=False, num_sources=0, sources_correct=True
)


@pytest.mark.parametrize(
    ("facts", "reward"),
    [
        (UNANSWERABLE, 1.37),  # 1 + 0.3 + 0 (none cited) + 0.07
        (replace(UNANSWERABLE, correct=True), 1.37),
        (replace(UNANSWERABLE, num_sources=2, sources_correct=False), 0.1),  # declines, but cites something
        (replace(UNANSWERABLE, declined=False), -0.8),  # makes something up
        (replace(UNANSWERABLE, declined=False, end=ArtEEnd.NO_ANSWER), 0.2),
    ],
)
def test_a_question_without_an_answer(facts: ArtEFacts, reward: float) -> None:
    assert art_e_reward(facts, CONTINUE) == pytest.approx(reward)


def test_ablation_without_partial_credit() -> None:
    plain = replace(CONTINUE, partial_credit=False)
    ended = replace(END, partial_credit=False)
    assert art_e_reward(WRONG, plain) == -1.0
    assert art_e_reward(DECLINED, plain) == 0.0
    assert art_e_reward(OUT_OF_TURNS, plain) == 0.0
    assert art_e_reward(RIGHT, plain) == pytest.approx(1.47)  # the bonuses of a correct answer are no partial credit
    assert art_e_reward(replace(WRONG, end=ArtEEnd.BAD_ARGUMENTS), ended) == -1.8


def test_ablation_of_a_bonus_for_more_turns() -> None:
    more = replace(CONTINUE, turn_bonus="more")
    assert art_e_reward(RIGHT, more) == pytest.approx(1.43)
    assert art_e_reward(replace(RIGHT, turns=10), more) == pytest.approx(1.5)
    assert art_e_reward(OUT_OF_TURNS, more) == pytest.approx(0.5)
    assert art_e_reward(RIGHT, replace(CONTINUE, turn_bonus="none")) == pytest.approx(1.4)


def test_binary_reward() -> None:
    assert [binary_reward(facts) for facts in (RIGHT, WRONG, DECLINED, OUT_OF_TURNS, UNANSWERABLE)] == [1, 0, 0, 0, 1]
    assert binary_reward(replace(UNANSWERABLE, num_sources=1)) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"turns": 11},
        {"turns": -1},
        {"num_sources": -1},
        {"bad_calls": -1},
        {"declined": True},
        {"end": ArtEEnd.NO_ANSWER},
    ],
)
def test_facts_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        replace(RIGHT, **wrong)  # type: ignore[arg-type]


@given(
    st.builds(
        replace,
        st.sampled_from([RIGHT, WRONG, DECLINED, UNANSWERABLE, OUT_OF_TURNS]),
        found_right_mail=st.booleans(),
        read_right_mail=st.booleans(),
        read_invalid_id=st.booleans(),
        sources_correct=st.booleans(),
        num_sources=st.integers(0, 20),
        bad_calls=st.integers(0, 30),
        turns=st.integers(0, 10),
    )
)
def test_right_beats_declining_beats_wrong(facts: ArtEFacts) -> None:
    reward = art_e_reward(facts, CONTINUE)
    assert -2 <= reward <= 1.5
    clean = art_e_reward(replace(facts, bad_calls=0), CONTINUE)
    assert reward <= clean
    if facts.right:
        assert clean >= 1
    elif facts.attempted:
        assert -1 <= clean <= -0.6
    else:
        assert 0 <= clean <= 0.4


@pytest.mark.parametrize(
    ("cited", "ids", "also", "scores"),
    [
        (["a"], ["a"], [], (1, 1, True)),
        (["a", "b"], ["a", "b"], [], (1, 1, True)),
        (["a"], ["a", "b"], [], (1, 0.5, False)),
        (["a", "x"], ["a"], [], (0.5, 1, False)),
        (["x"], ["a"], [], (0, 0, False)),
        ([], ["a"], [], (0, 0, False)),
        (["c"], ["a", "b"], ["c"], (1, 1, True)),  # another mail that gives the whole answer alone
        (["a", "c"], ["a", "b"], ["c", "d"], (1, 1, True)),
        (["c", "x", "y", "z"], ["a"], ["c"], (0.25, 1, False)),  # citing everything is not free
        (["a", "a", "a"], ["a"], [], (1, 1, True)),  # duplicates count once
        ([], [], [], (1, 1, True)),
        (["x"], [], [], (0, 1, False)),
    ],
)
def test_source_scores(cited: list[str], ids: list[str], also: list[str], scores: tuple[float, float, bool]) -> None:
    assert source_scores(cited, ids, also) == scores


MAILS = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@given(MAILS, MAILS, MAILS)
def test_source_scores_are_shares_and_correct_means_both(cited: list[str], ids: list[str], also: list[str]) -> None:
    precision, recall, correct = source_scores(cited, ids, also)
    assert 0 <= precision <= 1
    assert 0 <= recall <= 1
    assert correct == (precision == recall == 1)
    assert source_scores(list(reversed(cited)) * 2, ids, also) == (precision, recall, correct)
