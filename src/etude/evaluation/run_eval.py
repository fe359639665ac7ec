"""`etude eval`: play scenarios with a model (local, or at an endpoint) or a scripted policy, grade, record, and say how
sure the figures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.errors import TrainingError
from etude.evaluation.evaluate import play_scenarios, tickets_of
from etude.evaluation.players import open_player
from etude.evaluation.statistics import Interval, bootstrap_mean, mean_pass_at_k, powers_of_two, wilson_interval
from etude.rollout.group import Group
from etude.rollout.rollout import Rollout
from etude.training.config import RunConfig
from etude.training.events import Observer, RunStarted, silent
from etude.training.recorder import Recorder
from etude.training.run import Prepared, drive, managed_run, stopped_message
from etude.training.runtime import pick
from etude.training.summary import summarize

COST = "cost/usd_per_1000"


@dataclass(frozen=True, slots=True)
class EvalResult:
    """figures: plain means. intervals: 95 % intervals of the mean of each score and metric; scenarios are resampled
    (Wilson's where every value is 0 or 1 and there is one attempt)."""

    run_id: str
    figures: Mapping[str, float]
    intervals: Mapping[str, Interval]


def evaluate(config: RunConfig, *, environment: Environment | None = None, observer: Observer = silent) -> EvalResult:
    """Raises ConfigError, DataError, ModelError before anything is played."""
    prepared = Prepared.of(config, "eval", environment)
    config = prepared.config
    scenarios = pick(prepared.environment, config.eval.split, config.eval.scenarios)
    with managed_run(prepared) as run_id:
        recorder = Recorder(prepared.store, run_id, observer)
        recorder.tell(RunStarted(run_id, "eval", 0))
        groups: list[Group] = []
        used: dict[str, float] = {}
        drive(recorder, _play(prepared, recorder, scenarios, groups, used), stopped_message(prepared, run_id))
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        figures = {**summarize(rollouts, [r for g in groups for r in g.faulted]), **pass_figures(groups), **used}
        figures |= cost_figures(rollouts)
        recorder.store.add_step(run_id, 0, figures)
        recorder.validated(0, config.eval.split, figures)
        _refuse_nothing_scored(rollouts)
        return EvalResult(run_id, figures, intervals(groups, config.seed))


def _refuse_nothing_scored(rollouts: Sequence[Rollout]) -> None:
    """An evaluation in which everything broke measured nothing; it must not look like a success."""
    faults = [rollout.fault for rollout in rollouts if rollout.fault is not None]
    if faults and len(faults) == len(rollouts):
        first = faults[0]
        raise TrainingError(
            f"all {len(rollouts)} rollouts faulted, so nothing was measured. The first: {first.where} {first.kind}: "
            f"{first.message}"
        )


async def _play(
    prepared: Prepared,
    recorder: Recorder,
    scenarios: Sequence[Scenario],
    groups: list[Group],
    used: dict[str, float],
) -> None:
    config = prepared.config
    async with open_player(prepared, recorder, config.eval.temperature) as player:
        groups += await play_scenarios(
            player,
            tickets_of(scenarios),
            config.eval.attempts,
            name="eval",
            chunk=config.sampling.max_concurrent if config.deterministic else None,
            on_group=lambda group: recorder.group(0, config.eval.split, group),
            on_progress=partial(recorder.progress, config.eval.split),
        )
        used |= player.used()


def cost_figures(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """What 1,000 rollouts cost, by the mean of those that were scored; replies from the cache at their price. {} where
    there are no prices."""
    costs = [rollout.usage["cost"] for rollout in rollouts if rollout.reward is not None and "cost" in rollout.usage]
    return {COST: 1000 * float(np.mean(costs))} if costs else {}


def intervals(groups: Sequence[Group], seed: int) -> dict[str, Interval]:
    """95 % intervals of the reward, scores and metrics, over scenarios: attempts at one scenario are averaged first,
    for they are not independent. Rollouts without a reward are missing, not 0."""
    values: dict[str, list[list[float]]] = {}
    for group in groups:
        for name, per_attempt in _named_values(group.scored).items():
            values.setdefault(name, []).append(per_attempt)
    result = {}
    for name, per_scenario in values.items():
        means = [float(np.mean(attempts)) for attempts in per_scenario]
        if all(value in (0.0, 1.0) for value in means) and all(len(attempts) == 1 for attempts in per_scenario):
            result[name] = wilson_interval(int(sum(means)), len(means))
        elif len(means) > 1:
            result[name] = bootstrap_mean(means, seed=seed)
    return result


def _named_values(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    named: dict[str, list[float]] = {}
    for rollout in rollouts:
        entries = {
            "reward": rollout.reward or 0.0,
            **{f"score/{name}": value for name, value in rollout.scores.items()},
            **{f"metric/{name}": value for name, value in rollout.metrics.items()},
            **({COST: 1000 * rollout.usage["cost"]} if "cost" in rollout.usage else {}),
        }
        for name, value in entries.items():
            named.setdefault(name, []).append(value)
    return named


def success(rollout: Rollout) -> bool | None:
    """Whether an attempt was right: the metric "answer_correct", else the score "correct"; None where neither is."""
    value = rollout.metrics.get("answer_correct", rollout.scores.get("correct"))
    return None if value is None else value >= 1.0


def pass_figures(groups: Sequence[Group]) -> dict[str, float]:
    """pass@k for k = 1, 2, 4 ... up to the attempts that every scenario has scored; {} where success is not defined."""
    attempts: dict[str, list[bool]] = {}
    for group in groups:
        results = [success(rollout) for rollout in group.scored]
        if any(result is None for result in results):
            return {}
        if results:
            attempts[str(group.ticket.number)] = [bool(result) for result in results]
    return pass_at_all(attempts)


def pass_at_all(attempts: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    """attempts: by scenario, at least one each, whether each was right."""
    most = min(map(len, attempts.values()), default=0)
    return {f"pass@{k}": mean_pass_at_k(attempts, k) for k in powers_of_two(most)}
