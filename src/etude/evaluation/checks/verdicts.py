"""Plays the attacks and decides which of them a grader rewards.

An attempt's height is (reward − floor) / (gold − floor) within one scenario, where gold is the best right attempt. The
floor is 0 for a grader whose right answers earn more than 0; after real use of tools it is what a wrong answer earns
there, because a grader may rightly pay for that; and it is the wrong answer's reward where right ones earn 0 or less.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from etude.environment.calls import Fault
from etude.environment.scenario import Scenario
from etude.evaluation.checks.advice import ADVICE, MESSAGES
from etude.evaluation.checks.attacks import HOLDING, NOTHING_RIGHT, WRONG_ANSWER, Attempt, Pair, Target, attempts, pairs
from etude.evaluation.checks.delivery import call_turn
from etude.evaluation.checks.gold import Approach, Gold, form_of
from etude.evaluation.checks.report import Finding, shown
from etude.evaluation.checks.stage import Stage, told
from etude.evaluation.checks.values import as_text
from etude.rollout.messages import Message
from etude.rollout.rollout import Rollout

SCREENED = 3  # scenarios on which every attack is played; attacks that earn nothing there are not played on more
SHARE = 1 / 3  # of the scenarios: an attack that works on fewer may be a coincidence ...
BEYOND_CHANCE = 0.25  # ... and by how much more often than the most frequent reference is right by chance
TOOLS_PAY = 0.6  # of the gold reward: more than this for a wrong answer after real use of tools
CLEAR = 0.1  # how much of the gold reward a right answer must be above a wrong one to count as told apart
_EVEN = 0.5  # a reward from which "everything earns the same" is a hole, rather than a gold answer that was not found
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Scale:
    """What rewards of one scenario and approach mean. known: False where no right attempt was found; then the scale is
    taken to be 0 to 1, and only attempts without an answer are judged."""

    floor: float
    gold: float
    wrong: float | None
    known: bool = True

    def height(self, reward: float) -> float:
        return (reward - self.floor) / (self.gold - self.floor)


@dataclass
class Tally:
    """What one way of an attack did. best: its highest attempt, with its height and scale."""

    worked: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    best: tuple[float, Rollout, Scale, str] | None = None

    def counts(self, share: float) -> bool:
        enough = max(1 if len(self.tried) < 3 else 2, math.ceil(share * len(self.tried)))
        return self.best is not None and len(self.worked) >= enough


@dataclass
class Attacks:
    """Plays the catalogue.

    noise: how far the grader differs from itself over one rollout. tallies: by attack and variant. faults: of grader
    and tools, with the attempts that brought them about. wrong: rewards of wrong answers. unreached: scenarios without
    an attempt that the grader tells from a wrong one. actions: what is graded is what was done, not what is answered (a
    basket to be filled): then the wrong attempt is to do what another scenario asks for."""

    stage: Stage
    gold: Gold
    targets: Sequence[Target]
    noise: float = 0.0
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    faults: dict[Fault, list[Rollout]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[float] = field(default_factory=list)
    unreached: set[str] = field(default_factory=set)
    actions: bool = False

    async def run(self, progress: Progress) -> None:
        """First everything on a few scenarios, then what worked there on all."""
        self.actions = await self._grades_actions()
        for number, target in enumerate(self.targets):
            names = None if number < SCREENED else {name for (name, _), each in self.tallies.items() if each.worked}
            await self._attack(target, names)
            progress("attacks", number + 1, len(self.targets))

    async def _attack(self, target: Target, names: set[str] | None) -> None:
        if self.actions:
            target = self._swapped(target)
        catalogue = list(attempts(target))
        wrong = [each for each in catalogue if each.name == "wrong"]
        rest = [each for each in catalogue if each.name != "wrong" and (names is None or each.name in names)]
        for approach in self.gold.approaches:
            if self.actions and approach.uses_tools:
                await self._other_actions(approach, target)
                continue
            played = await self._play_all(approach, target, wrong)
            scale = self._scale(approach, target, [reward for _, _, reward in played])
            if scale is None:
                continue
            self._judge(approach, target, scale, played)
            if approach.uses_tools and scale.known and scale.gold > 0:
                paid = [
                    (replace(each, name="tools-pay", limit=TOOLS_PAY), rollout, reward)
                    for each, rollout, reward in played
                ]
                self._judge(approach, target, Scale(0.0, scale.gold, scale.wrong), paid)
            with_tools = any(each.uses_tools for each in self.gold.approaches)
            # Where real use of tools earns something, repeated calls are judged above what that earns.
            some = [
                each for each in rest if approach.uses_tools or not (with_tools and each.before and not self.actions)
            ]
            self._judge(approach, target, scale, await self._play_all(approach, target, some))
            for pair in pairs(target):
                if (names is None or pair.name in names) and scale.known:
                    await self._compare(approach, target, scale, pair)

    async def _grades_actions(self) -> bool:
        """Whether a right attempt's calls earn the same with a wrong answer; only where scenarios ask for different
        calls, for else it is a grader that does not read answers."""
        approach = self.gold.approaches[-1] if self.gold.approaches else None
        if approach is None or not approach.uses_tools or len({_doings(each) for each in approach.before.values()}) < 2:
            return False
        earned: list[tuple[float, float]] = []
        for target in self.targets[:SCREENED]:
            best = self.gold.best.get(target.scenario.id)
            played = await self._play_all(approach, target, [Attempt("wrong", "I don't know")])
            if best is not None and best.reward is not None and played:
                earned.append((best.reward, played[0][2]))
        return bool(earned) and all(wrong >= (1 - CLEAR) * gold > 0 for gold, wrong in earned)

    def _other(self, target: Target) -> str | None:
        """A scenario that asks for other calls, preferably for none of the same."""
        before = self.gold.approaches[-1].before
        mine = set(_doings(before.get(target.scenario.id, ())))
        others = [name for name in before if set(_doings(before[name])) - mine or not before[name]]
        return min(others, key=lambda name: len(mine & set(_doings(before[name]))), default=None)

    def _swapped(self, target: Target) -> Target:
        other = self._other(target)
        turns = self.gold.approaches[-1].before[other] if other is not None else ()
        calls = {call.name: call for turn in turns for call in turn.tool_calls}
        varied = {name: some for name, some in target.varied.items() if name in calls}
        return replace(target, calls=list(calls.values()), varied=varied, guesses={}, reference=None, right=[])

    async def _other_actions(self, approach: Approach, target: Target) -> None:
        other = self._other(target)
        best = self.gold.best.get(target.scenario.id)
        if other is None or best is None or best.reward is None or best.reward <= 0:
            return
        swapped = replace(approach, before={target.scenario.id: approach.before[other]})
        attempt = Attempt("wrong-calls", target.wrong[0] if target.wrong else "Done.", WRONG_ANSWER)
        played = await self._play_all(swapped, target, [attempt])
        self.wrong += [reward for _, _, reward in played]
        self._judge(approach, target, Scale(0.0, best.reward, None), played)

    def _scale(self, approach: Approach, target: Target, wrong: Sequence[float]) -> Scale | None:
        """None where this approach has nothing to earn above its floor."""
        self.wrong += wrong
        best = self.gold.best.get(target.scenario.id)
        gold = best.reward if best is not None else None
        least = min(wrong) if wrong else None
        if target.reference is not None and target.declines:
            return Scale(0.0, gold, least) if gold is not None and gold > 0 else None
        if self.actions and gold is not None and gold > 0:
            return Scale(0.0, gold, least)
        told_apart = gold is not None and least is not None and gold > least + CLEAR * abs(gold)
        if gold is None or target.reference is None or not (told_apart or gold >= _EVEN):
            self.unreached.add(target.scenario.id)
            return Scale(0.0, 1.0, least, known=False) if not approach.uses_tools else None
        if gold <= 0:
            return Scale(max(wrong), gold, least) if gold > max(wrong) else None
        if not approach.uses_tools or least is None or least >= gold:
            return Scale(0.0, gold, least)
        return Scale(max(0.0, least), gold, least)

    async def _play_all(
        self, approach: Approach, target: Target, some: Iterable[Attempt]
    ) -> list[tuple[Attempt, Rollout, float]]:
        some = list(some)
        rollouts = await asyncio.gather(*(self._play(approach, target, each) for each in some))
        return [
            (attempt, rollout, rollout.reward)
            for attempt, rollout in zip(some, rollouts, strict=True)
            if rollout is not None and rollout.reward is not None
        ]

    async def _play(self, approach: Approach, target: Target, attempt: Attempt) -> Rollout | None:
        turns = turns_of(approach, target, attempt)
        if turns is None:
            return None
        rollout = await self.stage.play(target.scenario, turns, cut=attempt.cut)
        if rollout.fault is not None:
            self.faults[rollout.fault].append(rollout)
        return rollout

    def _judge(
        self, approach: Approach, target: Target, scale: Scale, played: Sequence[tuple[Attempt, Rollout, float]]
    ) -> None:
        groups: dict[object, list[tuple[Attempt, Rollout, float]]] = defaultdict(list)
        for number, each in enumerate(played):
            groups[each[0].group or number].append(each)
        for members in groups.values():
            attempt, rollout, reward = min(members, key=lambda each: each[2])
            if not scale.known and attempt.limit != NOTHING_RIGHT:
                continue
            tally = self.tallies[attempt.name, f"{approach.name}: {attempt.variant}"]
            tally.tried.add(target.scenario.id)
            height = scale.height(reward)
            if height >= attempt.limit:
                self._record(tally, target, height, rollout, scale, approach.name)

    async def _compare(self, approach: Approach, target: Target, scale: Scale, pair: Pair) -> None:
        base, more = [await self._play(approach, target, each) for each in (pair.base, pair.more)]
        if base is None or more is None or base.reward is None or more.reward is None:
            return
        tally = self.tallies[pair.name, f"{approach.name}: {pair.variant}"]
        tally.tried.add(target.scenario.id)
        gain = scale.height(more.reward) - scale.height(base.reward)
        if gain >= pair.gain and more.reward - base.reward > 3 * self.noise:
            self._record(tally, target, gain, more, scale, f"{approach.name}; {base.reward:.3g} without the padding")

    @staticmethod
    def _record(tally: Tally, target: Target, height: float, rollout: Rollout, scale: Scale, how: str) -> None:
        tally.worked.add(target.scenario.id)
        if tally.best is None or height > tally.best[0]:
            tally.best = (height, rollout, scale, how)

    def findings(self) -> list[Finding]:
        """One for each attack that works in the same way on enough scenarios."""
        share = max(SHARE, min(1.0, self._commonest() + BEYOND_CHANCE))
        found: dict[str, Tally] = {}
        for (name, _), tally in self.tallies.items():
            if tally.counts(share):
                held = found.setdefault(name, tally)
                if len(tally.worked) > len(held.worked):
                    found[name] = tally
        made = [_finding(name, tally) for name, tally in found.items()]
        return [*made, *(_fault_finding(fault, rollouts) for fault, rollouts in _by_place(self.faults).items())]

    def _commonest(self) -> float:
        """The share of scenarios that have the most frequent reference: a constant answer is right on so many."""
        texts = Counter(as_text(each.reference) for each in self.targets if each.reference is not None)
        return max(texts.values(), default=0) / max(1, sum(texts.values()))


def _doings(turns: Sequence[Message]) -> tuple[str, ...]:
    return tuple(f"{call.name}{call.arguments}" for turn in turns for call in turn.tool_calls)


def turns_of(approach: Approach, target: Target, attempt: Attempt) -> list[Message] | None:
    """The turns of an attempt; None where this approach cannot make it."""
    if attempt.cut:
        return [Message("assistant", str(attempt.value))]
    before = list(approach.before.get(target.scenario.id, ()))
    if attempt.before and attempt.parallel:
        before = [*before, call_turn(attempt.before)]
    elif attempt.before:
        room = max(1, target.repeats - len(before))
        before += [call_turn([call]) for call in attempt.before[:room]]
    if not attempt.answers:
        return before
    if attempt.bare:
        return [*before, Message("assistant", str(attempt.value))]
    value = form_of(attempt.value, approach.form) if attempt.value is target.reference else attempt.value
    # Who does not know the answer does not know the other fields that belong to it either.
    knows = attempt.name in HOLDING or attempt.value is target.reference
    scenario = target.scenario if knows else Scenario(target.scenario.id, target.scenario.split, {})
    last = approach.delivery.turn(
        value,
        scenario,
        fixed=approach.fixed.get(scenario.id) if knows else None,
        everywhere=attempt.everywhere,
        each=attempt.each,
        others=attempt.others,
    )
    return None if last is None else [*before, last]


def _finding(name: str, tally: Tally) -> Finding:
    assert tally.best is not None
    height, rollout, scale, how = tally.best
    return Finding(
        severity="fail",
        check=f"attack.{name}",
        message=MESSAGES[name],
        advice=ADVICE[name],
        scenario=rollout.scenario_id,
        evidence={
            "attempt": told(rollout),
            "answer": shown(rollout.answer),
            "reward": rollout.reward,
            "gold_reward": scale.gold if scale.known else None,
            "wrong_reward": scale.wrong,
            "height": round(height, 3),
            "scores": dict(rollout.scores),
            "handed_in": how,
        },
        seen=len(tally.worked),
        of=len(tally.tried),
    )


def _by_place(faults: dict[Fault, list[Rollout]]) -> dict[Fault, list[Rollout]]:
    """Faults of one line are one, whatever their messages quote."""
    grouped: dict[tuple[str, str, str], tuple[Fault, list[Rollout]]] = {}
    for fault, rollouts in faults.items():
        place = fault.message.rpartition("(")[2] if fault.kind == "exception" else fault.kind
        grouped.setdefault((fault.where, fault.kind, place), (fault, []))[1].extend(rollouts)
    return dict(grouped.values())


def _fault_finding(fault: Fault, rollouts: Sequence[Rollout]) -> Finding:
    of_grader = fault.where.startswith(("grader:", "metrics"))
    what = "grader" if of_grader else "tool" if fault.where.startswith("tool:") else "environment"
    stops = Counter(str(each.stop) for each in rollouts)
    return Finding(
        severity="warn",
        check=f"fault.{what}",
        message=f"{fault.where} broke ({fault.kind}) on an attempt that a model may make: {fault.message}",
        advice="An attempt that faults has no reward: it is played again and then dropped, so nothing is learned from "
        "it. "
        + ("Return a low score for it instead." if of_grader else "Raise etude.ToolError for a model's mistake."),
        scenario=rollouts[0].scenario_id,
        evidence={"attempt": told(rollouts[0]), "answer": shown(rollouts[0].answer), "stops": dict(stops)},
        seen=len({each.scenario_id for each in rollouts}),
        of=0,
    )
