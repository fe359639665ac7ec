"""`etude eval`: play scenarios with a model (or a scripted policy), grade, record, and say how sure the figures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.errors import TrainingError
from etude.evaluation.evaluate import play_scenarios
from etude.evaluation.statistics import Interval, bootstrap_mean, pass_at_k, wilson_interval
from etude.rollout.group import Group, Ticket
from etude.rollout.player import Player
from etude.rollout.rollout import Rollout
from etude.rollout.scripted import play
from etude.training.config import RunConfig
from etude.training.events import Observer, RunStarted, silent
from etude.training.recorder import Recorder
from etude.training.run import Prepared, drive, managed_run, stopped_message
from etude.training.runtime import Runtime, find_model, open_runtime, pick
from etude.training.summary import summarize

if TYPE_CHECKING:
    from etude.engine.local import LocalEngine


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
        work = _play_model if config.eval.policy == "model" else _play_policy
        drive(recorder, work(prepared, recorder, scenarios, groups), stopped_message(prepared, run_id))
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        figures = {**summarize(rollouts, [r for g in groups for r in g.faulted]), **pass_figures(groups)}
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


async def _play_model(
    prepared: Prepared, recorder: Recorder, scenarios: Sequence[Scenario], groups: list[Group]
) -> None:
    config = prepared.config
    source = find_model(config, prepared.store)
    async with open_runtime(config, prepared.environment, source) as runtime:
        recorder.problems(runtime.problems)
        engine = await runtime.in_compute(partial(_make_engine, runtime))
        player = Player(
            environment=prepared.environment,
            engine=engine,
            chat=runtime.chat,
            seed=config.seed,
            temperature=config.eval.temperature,
            max_retries=config.sampling.max_retries,
            max_concurrent=None if config.deterministic else config.sampling.max_concurrent,
        )
        try:
            groups += await play_scenarios(
                player,
                scenarios,
                config.eval.attempts,
                name="eval",
                chunk=config.sampling.max_concurrent if config.deterministic else None,
                on_group=lambda group: recorder.group(0, config.eval.split, group),
                on_progress=partial(recorder.progress, config.eval.split),
            )
        finally:
            await engine.aclose()


def _make_engine(runtime: Runtime) -> LocalEngine:
    from etude.training.loop import make_engine  # imports torch

    return make_engine(runtime, runtime.config.sampling.max_concurrent, lambda: 0)


async def _play_policy(
    prepared: Prepared, recorder: Recorder, scenarios: Sequence[Scenario], groups: list[Group]
) -> None:
    environment, config = prepared.environment, prepared.config
    policy = environment.policies[config.eval.policy]
    for number, scenario in enumerate(scenarios):
        rollout = await play(environment, scenario, policy)
        groups.append(Group(Ticket(number, scenario), [rollout]))
        recorder.group(0, config.eval.split, groups[-1])
        recorder.progress(config.eval.split, number + 1, len(scenarios))


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
    counts = []
    for group in groups:
        results = [success(rollout) for rollout in group.scored]
        if any(result is None for result in results):
            return {}
        if results:
            counts.append((len(results), sum(bool(result) for result in results)))
    most = min((attempts for attempts, _ in counts), default=0)
    ks = [2**power for power in range(most.bit_length()) if 2**power <= most]
    return {f"pass@{k}": float(np.mean([pass_at_k(n, c, k) for n, c in counts])) for k in ks}
