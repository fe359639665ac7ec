"""`--dry-run`: what a run would take, before any model loads. Estimates, and they say on what they rest."""

from __future__ import annotations

import time
from dataclasses import replace

from etude.engine.remote.settings import key_variable, read_key
from etude.model.shape import MemoryEstimate, estimate_memory
from etude.model.source import ModelSource
from etude.store.records import RunKind
from etude.training.config import RunConfig
from etude.training.learner_config import learner_config
from etude.training.run import Prepared
from etude.training.runtime import endpoint_settings, find_model, lora_settings, pick
from etude.training.traces import find_traces

TYPICAL_SHARE = 0.4  # of max_tokens that a rollout uses; measured on e-mail search, where most end early
COMPUTE_SHARE = 0.3  # of a large matrix product's speed that training reaches
GIB = 2**30


def dry_run(config: RunConfig, kind: RunKind) -> list[tuple[str, str]]:
    """Lines for a person. kind: any that plays or learns. Raises what would stop the run before it starts."""
    prepared = Prepared.of(config, kind)
    config = prepared.config
    if config.model.endpoint is not None and (kind == "baseline" or config.eval.policy == "model"):
        return _endpoint_lines(prepared)
    source = find_model(config, prepared.store)
    rollouts, learned, updates = _work(prepared)
    limits = prepared.environment.limits
    typical = TYPICAL_SHARE * limits.max_tokens
    flops = matmul_flops()
    memory = _memory(config, kind, limits.max_tokens, source)
    parameters = memory.parameters
    lines = [("environment", f"{prepared.environment.name}, {len(prepared.environment.tools_by_name)} tools")]
    lines.append(("model", f"{source.name}: {parameters / 1e6:.1f}M parameters"))
    if rollouts:
        lines.append(("rollouts", f"{rollouts} of at most {limits.max_tokens} tokens, {limits.max_turns} turns"))
    seconds = (2 * rollouts + 6 * learned) * typical * parameters / (COMPUTE_SHARE * flops)
    lines.append(
        ("time", f"about {_duration(seconds)} (at {typical:.0f} tokens a rollout, this CPU, tools not counted)")
    )
    if updates:
        lines.append(("steps", str(updates)))
    parts = {"weights": memory.weights, "gradients": memory.gradients, "optimizer": memory.optimizer}
    parts |= {"KV cache": memory.cache, "activations": memory.activations}
    shown = ", ".join(f"{name} {size / GIB:.2f}" for name, size in parts.items() if size)
    lines.append(("memory", f"about {sum(parts.values()) / GIB:.2f} GiB at most ({shown})"))
    return lines


def _endpoint_lines(prepared: Prepared) -> list[tuple[str, str]]:
    """The endpoint itself is not asked."""
    settings, limits = endpoint_settings(prepared.config), prepared.environment.limits
    rollouts, _, _ = _work(prepared)
    requests = rollouts * limits.max_turns
    variable = key_variable(settings)
    lines = [("environment", f"{prepared.environment.name}, {len(prepared.environment.tools_by_name)} tools")]
    lines.append(("model", f"{settings.model} at {settings.url}"))
    lines.append(("key", f"from {variable}" if variable and read_key(settings) else "none"))
    lines.append(("rollouts", f"{rollouts} of at most {limits.max_tokens} tokens, {limits.max_turns} turns"))
    lines.append(("requests", f"at most {requests}, {settings.connections} at once, retries not counted"))
    if settings.requests_per_minute is not None:
        seconds = 60 * requests / settings.requests_per_minute
        lines.append(("time", f"at most {_duration(seconds)} ({settings.requests_per_minute:g} requests a minute)"))
    if settings.prompt_price is not None and settings.completion_price is not None:
        typical = TYPICAL_SHARE * limits.max_tokens  # of a rollout at its end; its turns' prompts grow up to it
        sampled = min(typical, limits.max_turns * limits.max_tokens_per_turn)
        cost = rollouts * (limits.max_turns * typical / 2 * settings.prompt_price + sampled * settings.completion_price)
        lines.append(
            ("cost", f"about {cost / 1e6:.2f} USD or less (at {typical:.0f} tokens a rollout, all turns used)")
        )
    lines.append(("cache", str(settings.cache) if settings.cache is not None else "off"))
    return lines


def _work(prepared: Prepared) -> tuple[int, int, int]:
    """(rollouts sampled, sequences trained, optimizer steps)."""
    config, environment, kind = prepared.config, prepared.environment, prepared.kind
    if kind == "baseline":
        scenarios = pick(environment, config.baseline.split, config.baseline.scenarios)
        return len(scenarios) * config.baseline.attempts, 0, 0
    if kind == "eval":
        scenarios = pick(environment, config.eval.split, config.eval.scenarios)
        return len(scenarios) * config.eval.attempts, 0, 0
    learner_config(config, environment.limits.max_tokens)
    if kind == "sft":
        traces = find_traces(config, environment, prepared.store)
        steps = min(config.training.steps, -(-len(traces) // config.sft.rows_per_step) * config.sft.epochs)
        return 0, steps * config.sft.rows_per_step, steps
    pick(environment, "train", None)
    trained = config.training.steps * config.sampling.groups_per_step * config.sampling.rollouts_per_group
    validated = 0
    if config.training.eval_every:
        scenarios = pick(environment, "validation", config.training.eval_scenarios)
        validated = (
            len(scenarios) * config.training.eval_attempts * (config.training.steps // config.training.eval_every + 1)
        )
    return trained + validated, trained, config.training.steps


def _memory(config: RunConfig, kind: str, max_tokens: int, source: ModelSource) -> MemoryEstimate:
    """eval and baseline keep no gradients and optimizer, sft no cache."""
    learns = kind in ("train", "sft")
    estimate = estimate_memory(
        source,
        dtype=config.model.dtype,
        lora=lora_settings(config.model),
        slots=0 if kind == "sft" else config.sampling.max_concurrent,
        context=max_tokens,
        batch_tokens=max(config.learning.max_tokens_per_microbatch, max_tokens) if learns else 0,
    )
    return estimate if learns else replace(estimate, gradients=0, optimizer=0)


def matmul_flops(size: int = 1024, repeats: int = 5) -> float:
    """Floating-point operations a second of a float32 matrix product on this machine, now."""
    import torch

    left = torch.randn(size, size)
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        left @ left
        best = min(best, time.perf_counter() - started)
    return float(2 * size**3 / best)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
