"""The check of an environment: everything that `etude check` does, in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etude.environment.blame import blame
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.errors import ConfigError
from etude.evaluation.checks import leaks, tools
from etude.evaluation.checks.delivery import deliveries
from etude.evaluation.checks.gold import Approach, Gold, find_gold, mean
from etude.evaluation.checks.leaks import Told
from etude.evaluation.checks.report import CheckReport, Finding, silenced
from etude.evaluation.checks.stage import Stage, told
from etude.evaluation.checks.targets import make_target
from etude.evaluation.checks.template import check_template
from etude.evaluation.checks.values import is_empty, scenarios_by_split, value_at
from etude.evaluation.checks.verdicts import Attacks, Progress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SCENARIOS = 8
GRADED_AGAIN = 3  # times the same rollout is graded
UNSTEADY, VERY_UNSTEADY = 0.01, 0.25  # of the way from wrong to gold, by which a judge may differ from itself
_MOST_READ = 200  # scenarios whose prompts are searched for their references


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


def check_environment(
    environment: Environment,
    *,
    split: str = "train",
    scenarios: int = SCENARIOS,
    reference: str | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    chat: str = "auto",
    allow: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> CheckReport:
    """Check grader, tools, data and (with a tokenizer) the chat template.

    scenarios: how many of the split are played, evenly spread. reference: the field that holds the right answer, where
    its name does not say so. allow: names of checks whose findings are silenced, each with the reason. progress: is
    told (what, done, total). Each attempt is bounded by the environment's own limits of time.

    Raises ConfigError for a split that is not there, or a reference that no scenario has.
    """
    if scenarios < 1:
        raise ConfigError(f"scenarios is {scenarios}; check at least one")
    rows = environment.scenarios_of(split)
    if reference is not None and all(is_empty(value_at(row, reference)) for row in rows):
        raise ConfigError(f"no scenario of {split} has a field {reference!r}; they have: {', '.join(rows[0])}")
    work = _check(environment, split, scenarios, reference, tokenizer, chat, allow or {}, progress)
    return asyncio.run(work)


async def _check(
    environment: Environment,
    split: str,
    count: int,
    reference: str | None,
    tokenizer: PreTrainedTokenizerBase | None,
    chat: str,
    allow: Mapping[str, str],
    progress: Progress,
) -> CheckReport:
    texts, findings = _read_prompts(environment)
    rows = [row for row in environment.scenarios_of(split) if row.id in texts]
    chosen = _spread(rows, count)
    stage = Stage(environment)
    progress("gold answers", 0, 1)
    gold = await find_gold(stage, chosen, reference)
    progress("gold answers", 1, 1)
    if not gold.sure and (mean([each.reward for each in gold.best.values()]) < 0.5 or not gold.values):
        gold.values, gold.path = {}, ""
    if not gold.approaches:
        gold.approaches = [Approach("", deliveries(environment, "")[0])]
    attacks = Attacks(stage, gold, [make_target(environment, each, gold, rows, texts) for each in chosen])
    for target in attacks.targets:
        if target.declines:
            await _decline(stage, gold, target.scenario)
    attacks.noise, unsteady = await _steady(stage, gold)
    await attacks.run(progress)
    findings += [*attacks.findings(), *unsteady, *_gold_findings(gold, attacks, chosen, split)]
    progress("tools and leaks", 0, 1)
    references = {row.id: value_at(row, gold.path) for row in rows} if gold.path else gold.values
    findings += await tools.check_tools(stage, gold, chosen, references)
    findings += leaks.between_splits(environment, texts, gold.path)
    findings += leaks.in_prompt(rows[:_MOST_READ], texts, references)
    findings += leaks.in_tool_specs(environment, references)
    if tokenizer is not None:
        findings += check_template(tokenizer, chat, environment)
    progress("tools and leaks", 1, 1)
    return CheckReport(
        environment=environment.name,
        split=split,
        scenarios=len(chosen),
        attempts=stage.graded,
        gold=gold.source or "not found",
        gold_reward=_finite(mean([each.reward for each in gold.best.values()])),
        wrong_reward=_finite(mean(attacks.wrong)),
        checks=("gold", "attacks", "judge", "tools", "leaks", *(("template",) if tokenizer is not None else ())),
        findings=silenced(findings, allow),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _spread(rows: Sequence[Scenario], count: int) -> list[Scenario]:
    step = max(1.0, len(rows) / count)
    return [rows[int(number * step)] for number in range(min(count, len(rows)))]


def _read_prompts(environment: Environment) -> tuple[dict[str, Told], list[Finding]]:
    """What the model reads first, of every scenario; and what could not be made."""
    texts: dict[str, Told] = {}
    broken: list[tuple[str, str]] = []
    for rows in scenarios_by_split(environment).values():
        for scenario in rows:
            try:
                texts[scenario.id] = Told(environment.instructions_for(scenario), environment.prompt_for(scenario))
            except Exception as error:  # noqa: BLE001 - the boundary to the user's functions: named, and a finding
                broken.append((scenario.id, blame(error)))
    if not broken:
        return texts, []
    if not texts:
        raise ConfigError(f"no scenario of {environment.name} has a prompt; the first: {broken[0][1]}")
    finding = Finding(
        "fail",
        "prompt",
        f"instructions or prompt of {len(broken)} scenarios cannot be made: {broken[0][1]}",
        "Such a scenario faults whenever it is played; mend the function or drop the row.",
        broken[0][0],
        seen=len(broken),
        of=len(broken) + len(texts),
    )
    return texts, [finding]


async def _decline(stage: Stage, gold: Gold, scenario: Scenario) -> None:
    """Where the reference says that there is no answer, saying so is the right attempt."""
    for approach in gold.approaches:
        for text in ("I don't know", "", "unknown", "none"):
            turns = approach.turns(text, scenario)
            if turns is not None:
                gold.offer(await stage.play(scenario, turns))


async def _steady(stage: Stage, gold: Gold) -> tuple[float, list[Finding]]:
    """Grades the same rollouts again. The largest difference, and what to say about it."""
    worst: tuple[float, str, list[float], str] = (0.0, "", [], "")
    sizes: list[float] = []
    by_scenario = {each.id: each for rows in scenarios_by_split(stage.environment).values() for each in rows}
    for rollout in [*gold.best.values(), *gold.played[-4:]]:
        scenario = by_scenario[rollout.scenario_id]
        if rollout.reward is None:
            continue
        again = [(await stage.grade(rollout, scenario)).reward for _ in range(GRADED_AGAIN)]
        rewards = [rollout.reward, *(each for each in again if each is not None)]
        sizes += [abs(each) for each in rewards]
        spread = max(rewards) - min(rewards)
        if spread > worst[0]:
            worst = (spread, rollout.scenario_id, rewards, told(rollout))
    spread, where, rewards, attempt = worst
    size = max(sizes, default=1.0) or 1.0
    if spread <= UNSTEADY * size:
        return spread, []
    finding = Finding(
        "fail" if spread > VERY_UNSTEADY * size else "warn",
        "judge",
        f"the grader gave the same attempt rewards from {min(rewards):.3g} to {max(rewards):.3g}",
        "Set the judge's temperature to 0 and cache its verdicts, or take the mean of several: what differs between "
        "attempts of a group would otherwise be chance.",
        where,
        {"attempt": attempt, "rewards": [round(each, 4) for each in rewards]},
        1,
        len(gold.best),
    )
    return spread, [finding]


def _gold_findings(gold: Gold, attacks: Attacks, chosen: Sequence[Scenario], split: str) -> list[Finding]:
    found = [
        Finding("warn", "policy", f"the policy {name!r} broke: {line}", "Mend it, or take it out of policies.")
        for name, line in gold.broken.items()
    ]
    missed = [each.id for each in chosen if each.id in attacks.unreached]
    if len(missed) > len(chosen) / 2:
        best = max((each for each in gold.best.values() if each.reward is not None), key=_reward, default=None)
        found.append(
            Finding(
                "warn",
                "gold",
                f"no attempt was found that the grader rewards clearly above a wrong answer ({split}); attempts that "
                "need one to compare with were not judged",
                "Name the field that holds the right answer (--reference FIELD), or give the environment a policy that "
                "does it right (Environment.policies).",
                missed[0],
                {
                    "tried": gold.source or "no field",
                    "best": told(best) if best else "",
                    "reward": best and best.reward,
                },
                len(missed),
                len(chosen),
            )
        )
    return found


def _reward(rollout: Any) -> float:
    return float(rollout.reward)
