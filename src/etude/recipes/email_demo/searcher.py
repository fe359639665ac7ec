"""The clumsy searcher as a policy: the demo's baseline. The bundled model learned from attempts like these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache

from etude.environment.scenario import Scenario
from etude.recipes.email_demo.company import CompanySize
from etude.recipes.email_demo.corpus import generate
from etude.recipes.email_demo.names import Split
from etude.recipes.email_demo.tools import RESULTS
from etude.recipes.email_demo.traces import Trace, clumsy_traces
from etude.recipes.email_demo.views import COMPACT
from etude.rollout.messages import Message


class ClumsySearcher:
    """Makes the same attempt at a scenario whenever it is asked. It sees the generated mails themselves, so it knows
    what a mail says of a question; sizes: of each split's company. skill: see `clumsy_traces`."""

    def __init__(self, seed: int, sizes: Mapping[Split, CompanySize], skill: float) -> None:
        self._seed, self._sizes, self._skill = seed, sizes, skill
        self._attempts = cache(self._make_attempts)

    def next_turn(self, scenario: Scenario, messages: Sequence[Message]) -> Message:
        """The next assistant message, with one tool call."""
        split = next(name for name in self._sizes if name == scenario.split)
        step = self._attempts(split)[scenario.id].steps[sum(message.role == "assistant" for message in messages)]
        return Message("assistant", "", (step.call,))

    def _make_attempts(self, split: Split) -> dict[str, Trace]:
        corpus = generate(split, self._seed, **asdict(self._sizes[split]))
        attempts = clumsy_traces(corpus, self._seed, skill=self._skill, results=RESULTS, view=COMPACT)
        return {attempt.question["id"]: attempt for attempt in attempts}
