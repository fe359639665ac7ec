"""Where the traces of a warm start come from."""

from __future__ import annotations

from etude.environment.environment import Environment
from etude.errors import ConfigError, DataError
from etude.rollout.rollout import Rollout
from etude.rollout.traces import Trace, load_traces
from etude.store.store import Store
from etude.training.config import RunConfig


def find_traces(config: RunConfig, environment: Environment, store: Store) -> list[Trace]:
    """The traces that sft.traces names. Raises ConfigError, DataError."""
    source = config.sft.traces
    if source is None:
        raise ConfigError("sft.traces is not set: name a JSONL of conversations, or run:RUN for a run's rollouts")
    if not source.startswith("run:"):
        return load_traces(source)
    run = store.find_run(source.removeprefix("run:"))
    specs = tuple(environment.tool_specs)
    kept = [
        Trace(saved.rollout.messages, specs)
        for saved in store.iter_rollouts(run.id)
        if saved.rollout.split == "train" and _good(saved.rollout, config.sft.min_reward)
    ]
    if not kept:
        raise DataError(
            f"run {run.id} has no rollout on train scenarios with reward >= {config.sft.min_reward}: lower "
            "sft.min_reward, or evaluate with eval.split=train first"
        )
    return kept


def _good(rollout: Rollout, least: float | None) -> bool:
    return rollout.reward is not None and (least is None or rollout.reward >= least)
