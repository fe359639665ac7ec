"""The reward of ART·E, the e-mail search agent, with every row and edge case of its table; and plain 0/1.

partial = 0.1 each for: found the right mail, read it, never read an invalid id, sources_correct.

| outcome | reward |
|---|---|
| ended by an unparsable call or a turn without one / an unknown tool / bad arguments | −2 / −1.9 / −1.8, + partial |
| wrong answer | −1 + partial |
| "I don't know", or no answer at all (out of turns, tokens, calls or time) | 0 + partial |
| correct | 1 + 0.3·sources_correct + 0.1/num_sources (0 if none is cited) + 0.1·(1 − turns/max_turns) |

Source: the public ART·E articles and example code. Where a question has no answer, "I don't know" without sources is
the correct one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from etude.errors import ConfigError


class ArtEEnd(StrEnum):
    """How the attempt ended."""

    ANSWERED = "answered"
    NO_ANSWER = "no_answer"  # out of turns, tokens, calls or time; or a turn that was cut off
    UNPARSABLE_CALL = "unparsable_call"
    NO_CALL = "no_call"  # a turn without a call, where one was needed
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"


_BAD_END_REWARD = {
    ArtEEnd.UNPARSABLE_CALL: -2.0,
    ArtEEnd.NO_CALL: -2.0,
    ArtEEnd.UNKNOWN_TOOL: -1.9,
    ArtEEnd.BAD_ARGUMENTS: -1.8,
}


@dataclass(frozen=True, slots=True)
class ArtEFacts:
    """What the reward needs to know of one attempt.

    answerable: whether the question has an answer. declined: whether the answer given is "I don't know" and nothing
    else. correct: whether the answer given is right (unused where the question has none). num_sources: different mails
    cited. bad_calls: calls that were answered with an error because they could not be parsed, named no tool or had bad
    arguments. turns: assistant turns, of at most max_turns.
    """

    end: ArtEEnd
    answerable: bool
    correct: bool
    declined: bool
    found_right_mail: bool
    read_right_mail: bool
    read_invalid_id: bool
    sources_correct: bool
    num_sources: int
    bad_calls: int
    turns: int
    max_turns: int

    def __post_init__(self) -> None:
        if self.end is not ArtEEnd.ANSWERED and (self.correct or self.declined):
            raise ValueError(
                f"an attempt that ended with {self.end.value!r} has no answer: neither correct nor declined"
            )
        if self.correct and self.declined and self.answerable:
            raise ValueError('"I don\'t know" is not a correct answer to a question that has one')
        if not 0 <= self.turns <= self.max_turns or self.max_turns < 1 or self.num_sources < 0 or self.bad_calls < 0:
            raise ValueError(f"counts do not fit: {self}")

    @property
    def right(self) -> bool:
        """Whether this is the correct answer: where there is none, declining without citing anything."""
        return self.correct if self.answerable else self.declined and self.num_sources == 0

    @property
    def attempted(self) -> bool:
        """Whether it gave an answer rather than declined; hallucination rate = wrong / attempted."""
        return self.end is ArtEEnd.ANSWERED and not self.declined


@dataclass(frozen=True, slots=True)
class ArtESettings:
    """on_bad_call: what the environment did with a bad call: "end" is the article's rule (first row of the table);
    "continue" answers it with an error and takes `bad_call_cost` from the reward for each, never below `floor`.

    Ablations of the article, to be run again: partial_credit False (it had not sped learning); turn_bonus "more" pays
    0.1·turns/max_turns whatever the outcome (the model then repeated its last call to the limit); "none" pays nothing.
    """

    on_bad_call: Literal["continue", "end"] = "continue"
    partial_credit: bool = True
    turn_bonus: Literal["fewer", "more", "none"] = "fewer"
    bad_call_cost: float = 0.2
    floor: float = -2.0


def art_e_reward(facts: ArtEFacts, settings: ArtESettings) -> float:
    """The table above. Raises ConfigError where `facts` come from an environment with the other rule for bad calls."""
    reward = _outcome_reward(facts, settings)
    if settings.turn_bonus == "more":
        reward += 0.1 * facts.turns / facts.max_turns
    if settings.on_bad_call == "continue":
        reward = max(reward - settings.bad_call_cost * facts.bad_calls, settings.floor)
    return reward


def binary_reward(facts: ArtEFacts) -> float:
    """1 for the correct answer, else 0: the article's simplest ablation."""
    return 1.0 if facts.right else 0.0


def _outcome_reward(facts: ArtEFacts, settings: ArtESettings) -> float:
    partial = _partial_credit(facts) if settings.partial_credit else 0.0
    if facts.end in _BAD_END_REWARD:
        if settings.on_bad_call != "end":
            raise ConfigError(_other_rule(f"ended with {facts.end.value!r}", "end"))
        return _BAD_END_REWARD[facts.end] + partial
    if facts.bad_calls and settings.on_bad_call == "end":
        raise ConfigError(_other_rule(f"went on after {facts.bad_calls} bad calls", "continue"))
    if facts.right:
        sources = 0.1 / facts.num_sources if facts.num_sources else 0.0
        turns = 0.1 * (1 - facts.turns / facts.max_turns) if settings.turn_bonus == "fewer" else 0.0
        return 1.0 + 0.3 * facts.sources_correct + sources + turns
    if facts.attempted:
        return -1.0 + partial
    return partial


def _partial_credit(facts: ArtEFacts) -> float:
    reached = (facts.found_right_mail, facts.read_right_mail, not facts.read_invalid_id, facts.sources_correct)
    return 0.1 * sum(reached)


def _other_rule(what: str, rule: str) -> str:
    return f"this attempt {what}, so it was played with on_bad_call: {rule}; grade it with the same setting"


class SourceScores(NamedTuple):
    precision: float
    recall: float
    correct: bool  # both are 1


def source_scores(cited: Collection[str], ids: Collection[str], also: Collection[str]) -> SourceScores:
    """Scores of the mails that an answer cites. ids: the mails that it rests on, all of them needed. also: other mails
    that give the whole answer alone. Duplicates count once.

    precision = |cited ∩ (ids ∪ also)| / |cited|; recall = 1 if one of `also` is cited, else |cited ∩ ids| / |ids|.
    Citing nothing has precision 1 where nothing is to be cited, else 0.
    """
    named, needed, others = set(cited), set(ids), set(also)
    precision = len(named & (needed | others)) / len(named) if named else float(not needed)
    recall = 1.0 if named & others or not needed else len(named & needed) / len(needed)
    return SourceScores(precision, recall, precision == 1.0 and recall == 1.0)
