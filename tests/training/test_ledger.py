"""The ledger: every rollout that the pool played has one fate in one step, or waits; nothing is lost, nothing twice."""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from support.rollouts import rollout, row
from support.symbols import VALUES, drawers, reward, say
from support.training import train_drawers

from etude.cli.display import Display
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, tool
from etude.rollout.group import Group, Ticket
from etude.rollout.outcome import Outcome, Stop
from etude.rollout.pool import Pool, PoolSettings
from etude.rollout.rollout import Rollout
from etude.store.store import Store
from etude.training.events import StepDone
from etude.training.ledger import FATES, KEPT, Ended, Ledger, account, group_ended, ledgers_of


def ended(reward: float | None, **fields: Any) -> Ended:
    made = {"outcome": Outcome.OK, "stop": Stop.ANSWERED, "reward": reward, "sampled_tokens": 3, "fault": None}
    if reward is None:
        made |= {"outcome": Outcome.ENV_FAULT, "stop": Stop.TOOL_FAULT, "fault": "tool:search"}
    return Ended(**{**made, **fields})


def fates(fate: str, *rollouts: Ended) -> dict[str, int]:
    return {name: count for name, count in account([(fate, rollouts)], "mean").fates.items() if count}


def test_what_moved_the_weights_and_what_did_not() -> None:
    assert fates(KEPT, ended(0.0), ended(1.0)) == {"trained": 2}
    assert fates(KEPT, ended(1.0), ended(1.0)) == {"zero_variance": 2}
    assert fates(KEPT, ended(0.0), ended(0.5), ended(1.0)) == {"trained": 2, "at_the_mean": 1}
    assert fates(KEPT, ended(0.0), ended(1.0, sampled_tokens=0)) == {"trained": 1, "nothing_sampled": 1}


def test_a_fault_is_a_fault_whatever_became_of_its_group() -> None:
    broken = ended(None, outcome=Outcome.GRADER_FAULT, fault="grader:correct")
    assert fates(KEPT, ended(None), broken, ended(0.0), ended(1.0)) == {
        "env_fault": 1, "grader_fault": 1, "trained": 2
    }  # fmt: skip
    assert fates("too_few_scored", ended(None), ended(0.0)) == {"env_fault": 1, "too_few_scored": 1}
    assert fates("stale", ended(None), ended(0.0), ended(1.0)) == {"env_fault": 1, "stale": 2}
    assert account([(KEPT, [ended(None), broken])], "mean").faults == {"grader:correct": 1, "tool:search": 1}


def test_a_group_that_a_refill_replaced_had_no_variance() -> None:
    assert fates("zero_variance", ended(0.3), ended(0.3)) == {"zero_variance": 2}


def test_what_was_cut_off_counts_beside_its_fate() -> None:
    ledger = account([(KEPT, [ended(0.0, stop=Stop.TRUNCATED), ended(1.0), ended(None)])], "mean")
    assert (ledger.truncated, ledger.fates["trained"], ledger.sampled) == (1, 2, 3)


def test_every_count_is_a_figure_of_the_step() -> None:
    metrics = account([], "mean", waiting=4).metrics()
    assert metrics == {f"ledger/{name}": 0 for name in (*FATES, "sampled", "truncated")} | {"ledger/waiting": 4}
    assert "ledger/waiting" not in account([], "mean").metrics()


def played(draw: random.Random, version: int, shape: dict[str, float], group: int) -> Group:
    """A group of four attempts; some faulted first, or for good, or sampled nothing."""
    made: list[Rollout] = []
    faulted: list[Rollout] = []
    for attempt in range(4):
        while draw.random() < shape["fault"] and len(faulted) < 3:
            faulted.append(rollout(None, row(2, 1, version), attempt=attempt))
        score = None if draw.random() < shape["fault"] else float(draw.randrange(3)) / 2
        tokens = 0 if draw.random() < 0.05 else 2
        rows = () if score is None or not tokens else (row(2, tokens, version),)
        made.append(rollout(score, *(rows or (row(2, 0, version),)), attempt=attempt, completion_tokens=tokens))
    return Group(Ticket(group, Scenario(f"s{group}", "train", {})), made, faulted)


@given(
    seed=st.integers(0, 10**6),
    fault=st.sampled_from([0.0, 0.1, 0.4]),
    staleness=st.integers(0, 2),
    lockstep=st.booleans(),
    refill=st.booleans(),
    hops=st.integers(0, 12),
)
@settings(max_examples=60, deadline=None)
def test_counts_add_up_to_what_the_pool_played(
    seed: int, fault: float, staleness: int, lockstep: bool, refill: bool, hops: int
) -> None:
    draw = random.Random(seed)
    version = 0
    finished: dict[int, int] = {}
    dropped: list[tuple[str, Group]] = []

    async def play(ticket: Ticket) -> Group:
        group = played(draw, version, {"fault": fault}, ticket.number)
        for _ in range(draw.randrange(hops + 1)):
            await asyncio.sleep(0)
        return group

    async def on_group(group: Group, fate: str) -> None:
        finished[group.ticket.number] = len(group_ended(group))
        if fate != KEPT:
            dropped.append((fate, group))

    async def steps() -> None:
        nonlocal version
        pool = Pool(
            PoolSettings(3, staleness=staleness, lockstep=lockstep, refill=refill, max_fault_rate=1.0),
            lambda number: Scenario(f"s{number}", "train", {}),
            play,
            on_group,
        )
        decided = 0
        try:
            for _ in range(5):
                groups = await pool.next_step(version)
                version += 1
                waiting = sum(len(group_ended(group)) for group in pool.state().waiting)
                told = [*dropped, *((KEPT, group) for group in groups)]
                ledger = account([(fate, group_ended(group)) for fate, group in told], "mean", waiting)
                dropped.clear()
                assert set(ledger.fates) == set(FATES)
                assert ledger.sampled == sum(len(group_ended(group)) for _, group in told)
                decided += ledger.sampled
                assert decided + waiting == sum(finished.values())
        finally:
            await pool.aclose()

    asyncio.run(steps())


def stuck(seed: int) -> Any:
    draw = random.Random(seed)

    @tool
    async def open_drawer(number: int, context: ToolContext) -> str:
        """Open a drawer."""
        if draw.random() < 0.25:
            raise RuntimeError("the drawer is stuck")
        context.state["opened"] = number
        return VALUES[context.scenario["contents"][number]]

    return drawers(reward, tools=[open_drawer, say])


@pytest.mark.parametrize(
    "chosen",
    [
        {"sampling": {"max_retries": 1}},
        {"sampling": {"staleness": 1, "max_retries": 0}},
        {"sampling": {"max_retries": 0}, "training": {"zero_variance": "refill"}},
    ],
    ids=["retried", "one step behind", "refilled"],
)
def test_the_store_gives_the_ledger_that_the_run_wrote(tmp_path: Path, chosen: dict[str, Any]) -> None:
    """Two ways to count: the run's own, as it goes, and one from the rollouts that it saved."""
    run = train_drawers(tmp_path, steps=4, environment=stuck(1), **chosen)
    with Store.open(tmp_path / "work") as store:
        ledgers = ledgers_of(store, run.run_id, "mean")
        steps = store.steps(run.run_id)
        rows = store.rollouts(run.run_id, phase="train")
    assert list(ledgers) == [step.step for step in steps] == [1, 2, 3, 4]
    for step in steps:
        told = {name: value for name, value in step.metrics.items() if name.startswith("ledger/")}
        assert ledgers[step.step].metrics() == told
        assert told["ledger/trained"] == step.metrics["learner/trained_rows"]
    assert sum(ledger.sampled for ledger in ledgers.values()) == len(rows)
    faults = Counter(row.outcome for row in rows)[Outcome.ENV_FAULT]
    assert 0 < faults == sum(ledger.fates["env_fault"] for ledger in ledgers.values())


@pytest.mark.parametrize(
    ("fates", "said"),
    [
        ({"trained": 8}, None),
        ({"trained": 3, "zero_variance": 4, "env_fault": 1}, "trained 3 of 8 (env fault 1, zero variance 4)"),
        ({"stale": 8}, "trained 0 of 8 (stale 8)"),
    ],
)
def test_the_progress_line_says_what_was_lost(fates: dict[str, int], said: str | None) -> None:
    console = Console(file=io.StringIO(), width=200)
    metrics = Ledger({**dict.fromkeys(FATES, 0), **fates}).metrics()
    Display(console)(StepDone(1, 2, {"reward/mean": 0.5, **metrics}))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert said in text if said else "trained" not in text


def test_a_ledger_is_plain_counts() -> None:
    assert Ledger({"trained": 3, "stale": 2}).sampled == 5
