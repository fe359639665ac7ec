"""What happened in a rollout, read from its calls and its answer alone, so that a saved one can be graded again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from etude.environment.scenario import Scenario
from etude.grading.answer import AnswerCheck, check_answer, says_i_dont_know
from etude.grading.art_e import ArtEEnd, ArtEFacts, source_scores
from etude.recipes.email_search.tools import READ, SEARCH, found_ids
from etude.rollout.outcome import Stop
from etude.rollout.rollout import Rollout


@dataclass(frozen=True)
class Episode:
    """One rollout of one scenario, in the words of the article's rubric.

    ids_in: reads the message ids off what the search tool told the model."""

    rollout: Rollout
    scenario: Scenario
    ids_in: Callable[[str], list[str]] = found_ids

    @property
    def answer(self) -> str | None:
        """What return_final_answer was given; None where it was never called."""
        return self._final["answer"] if self._final else None

    @property
    def sources(self) -> frozenset[str]:
        """The mails that the answer cites."""
        return frozenset(self._final["sources"]) if self._final else frozenset()

    @cached_property
    def check(self) -> AnswerCheck:
        if self.answer is None:
            return AnswerCheck(False, "no answer was given")
        return check_answer(self.scenario, self.answer)

    @cached_property
    def declined(self) -> bool:
        """Whether the answer is that it does not know."""
        return self.answer is not None and says_i_dont_know(self.answer)

    @property
    def attempted(self) -> bool:
        return self.answer is not None and not self.declined

    @property
    def needed_ids(self) -> frozenset[str]:
        """The mails that the answer rests on: all are needed."""
        return frozenset(self.scenario["message_ids"])

    @property
    def also_ids(self) -> frozenset[str]:
        """Other mails that give the whole answer alone."""
        return frozenset(self.scenario["also_ids"])

    @cached_property
    def found(self) -> frozenset[str]:
        """Ids that a search showed to the model (what a cut left out was not shown)."""
        searches = (call for call in self.rollout.calls if call.name == SEARCH and call.kind == "ok")
        return frozenset(message_id for call in searches for message_id in self.ids_in(call.output))

    @cached_property
    def read(self) -> frozenset[str]:
        """Ids of the mails that were opened."""
        reads = (call for call in self.rollout.calls if call.name == READ and call.kind == "ok")
        return frozenset(call.arguments["message_id"] for call in reads)

    @property
    def invalid_reads(self) -> int:
        """Calls of read_email with an id of no mail that can be seen. It is the only error that this tool tells of."""
        return sum(call.name == READ and call.kind == "error" for call in self.rollout.calls)

    @property
    def found_right(self) -> bool:
        return bool(self.found & (self.needed_ids | self.also_ids))

    @property
    def read_right(self) -> bool:
        return bool(self.read & (self.needed_ids | self.also_ids))

    @cached_property
    def sources_correct(self) -> bool:
        return source_scores(self.sources, self.needed_ids, self.also_ids).correct

    @property
    def unparsable_calls(self) -> int:
        """Calls that could not be parsed, and turns without the call that was needed."""
        return sum(self.rollout.parse_failures.values())

    @property
    def unknown_tools(self) -> int:
        return sum(call.kind == "unknown_tool" for call in self.rollout.calls)

    @property
    def bad_arguments(self) -> int:
        return sum(call.kind == "bad_arguments" for call in self.rollout.calls)

    @property
    def duplicate_calls(self) -> int:
        """Calls that repeat one before them word for word."""
        made = Counter(
            json.dumps([call.name, call.arguments], sort_keys=True) for call in self.rollout.calls if call.name
        )
        return sum(count - 1 for count in made.values())

    @property
    def ran_out_of_turns(self) -> bool:
        return self.rollout.stop is Stop.OUT_OF_TURNS

    @property
    def truncated(self) -> bool:
        """Whether a turn, or the attempt, reached its limit of tokens."""
        return self.rollout.stop in (Stop.TRUNCATED, Stop.OUT_OF_TOKENS)

    @property
    def right(self) -> bool:
        """Whether the answer is the correct one; where the inbox has none, declining without sources is."""
        if self.scenario["answer"]:
            return self.check.correct
        return self.declined and not self.sources

    def facts(self, max_turns: int) -> ArtEFacts:
        """What ART·E's reward needs to know."""
        return ArtEFacts(
            end=_ENDS.get(self.rollout.stop, ArtEEnd.NO_ANSWER),
            answerable=bool(self.scenario["answer"]),
            correct=self.check.correct,
            declined=self.declined,
            found_right_mail=self.found_right,
            read_right_mail=self.read_right,
            read_invalid_id=self.invalid_reads > 0,
            sources_correct=self.sources_correct,
            num_sources=len(self.sources),
            bad_calls=self.unparsable_calls + self.unknown_tools + self.bad_arguments,
            turns=self.rollout.turns,
            max_turns=max_turns,
        )

    @property
    def _final(self) -> Mapping[str, Any] | None:
        """The arguments of return_final_answer."""
        answer: Mapping[str, Any] | None = self.rollout.answer
        return answer


# Every other stop of a scored rollout leaves the question unanswered.
_ENDS = {
    Stop.ANSWERED: ArtEEnd.ANSWERED,
    Stop.UNPARSABLE_CALL: ArtEEnd.UNPARSABLE_CALL,
    Stop.NO_CALL: ArtEEnd.NO_CALL,
    Stop.UNKNOWN_TOOL: ArtEEnd.UNKNOWN_TOOL,
    Stop.BAD_ARGUMENTS: ArtEEnd.BAD_ARGUMENTS,
}
