"""`etude baseline`: several attempts at each scenario before anything is trained, and what they say about training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.environment.environment import Environment
from etude.errors import TrainingError
from etude.evaluation.baseline_figures import Attempts, Finding, attempts_of, baseline_figures, findings
from etude.evaluation.evaluate import play_scenarios, tickets_of
from etude.evaluation.players import open_player
from etude.evaluation.statistics import Interval
from etude.rollout.group import Ticket
from etude.store.groups import groups_of
from etude.training.config import RunConfig
from etude.training.events import Observer, RunStarted, silent
from etude.training.recorder import Recorder
from etude.training.run import Prepared, drive, managed_run, resumed, stopped_message
from etude.training.runtime import pick, run_folder
from etude.training.summary import summarize

PHASE = "baseline"


@dataclass(frozen=True, slots=True)
class Baseline:
    """folder: the run's. attempts: by scenario, in their order. figures, intervals: see `baseline_figures`, and the
    means of `summarize`. findings: what follows, most pressing first."""

    run_id: str
    folder: Path
    attempts: tuple[Attempts, ...]
    figures: Mapping[str, float]
    intervals: Mapping[str, Interval]
    findings: tuple[Finding, ...]


def baseline(
    config: RunConfig,
    *,
    environment: Environment | None = None,
    observer: Observer = silent,
    resume: str | None = None,
) -> Baseline:
    """Play, or go on with, `baseline.attempts` attempts at each of `baseline.scenarios` scenarios.

    resume: a run id, its unique beginning, or "last". A scenario is saved when all its attempts are done, and is not
    played again; what is sampled depends on the seed and the scenario's number alone, so a baseline that was stopped
    has the figures of one that was not (to the last bit with `deterministic: true`). Raises EtudeError."""
    config, run = resumed(config, "baseline", resume)
    prepared = Prepared.of(config, "baseline", environment)
    config = prepared.config
    tickets = tickets_of(pick(prepared.environment, config.baseline.split, config.baseline.scenarios))
    with managed_run(prepared, run) as run_id:
        recorder = Recorder(prepared.store, run_id, observer)
        recorder.tell(RunStarted(run_id, "baseline", 0))
        left = _left_to_play(prepared, run_id, tickets)
        if len(left) < len(tickets):
            recorder.note("info", f"{len(tickets) - len(left)} of {len(tickets)} scenarios were played before")
        if left:
            drive(recorder, _play(prepared, recorder, left, len(tickets)), stopped_message(prepared, run_id))
        return _measure(prepared, recorder, run_id, tickets)


async def _play(prepared: Prepared, recorder: Recorder, left: Sequence[Ticket], scenarios: int) -> None:
    config, section = prepared.config, prepared.config.baseline
    before, total = (scenarios - len(left)) * section.attempts, scenarios * section.attempts
    wave = _wave_of(config)
    async with open_player(prepared, recorder, section.temperature) as player:
        await play_scenarios(
            player,
            left,
            section.attempts,
            name=PHASE,
            chunk=config.sampling.max_concurrent if config.deterministic else None,
            on_group=lambda group: recorder.group(wave(group.ticket), PHASE, group),
            on_progress=lambda done, _: recorder.progress(PHASE, before + done, total),
        )
        if used := dict(player.used()):  # of this start alone, so it is no figure of the baseline
            shown = ", ".join(f"{name} {value:.6g}" for name, value in used.items())
            recorder.note("info", f"used: {shown}", type="usage", data=used)


def _wave_of(config: RunConfig) -> Callable[[Ticket], int]:
    """In lock-step, scenarios play in waves, and what is sampled may depend (in the last bit of a log-probability) on
    who else is in the wave: so a wave is what is redone. Else all are one."""
    if not config.deterministic:
        return lambda ticket: 0
    per_wave = max(1, config.sampling.max_concurrent // config.baseline.attempts)
    return lambda ticket: ticket.number // per_wave


def _left_to_play(prepared: Prepared, run_id: str, tickets: Sequence[Ticket]) -> list[Ticket]:
    store, wave = prepared.store, _wave_of(prepared.config)
    done = {int(row.group) for row in store.rollouts(run_id, phase=PHASE)}
    left = [ticket for ticket in tickets if ticket.number not in done]
    if prepared.config.deterministic:
        again = {wave(ticket) for ticket in left}
        for number in again:
            store.delete_rollouts(run_id, phase=PHASE, step=number)
        left = [ticket for ticket in tickets if wave(ticket) in again]
    return left


def _measure(prepared: Prepared, recorder: Recorder, run_id: str, tickets: Sequence[Ticket]) -> Baseline:
    """From what is saved, so that it does not matter when it was played."""
    section, store = prepared.config.baseline, prepared.store
    groups = groups_of(store.iter_rollouts(run_id, phase=PHASE))
    ordered = [groups[ticket.number] for ticket in tickets]
    attempts = tuple(attempts_of(group) for group in ordered)
    figures, intervals = baseline_figures(attempts, section.attempts, prepared.config.seed)
    rollouts = [rollout for group in ordered for rollout in group.rollouts]
    summary = summarize(rollouts, [rollout for group in ordered for rollout in group.faulted])
    figures = {**summary, **figures}
    store.add_step(run_id, 0, figures)
    recorder.validated(0, section.split, figures)
    if not figures["attempts/scored"]:
        raise TrainingError(
            f"all {len(rollouts)} attempts broke, so nothing was measured: etude show {run_id} --rollouts"
        )
    told = tuple(findings(figures, intervals, section.attempts))
    for finding in told:
        recorder.note("info", f"{finding.seen}: {finding.advice}", type="finding", data={"finding": finding.name})
    return Baseline(run_id, run_folder(store, run_id), attempts, figures, intervals, told)
