"""Deterministic training against a plain synchronous loop, and against other orders in which tools answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from support.symbols import ID, OPENS, SAYS, VALUES, drawers, reward, save_symbol_model
from support.training import GROUPS, ROLLOUTS, assert_same_tensors, optimizer_of, train_drawers, weights_of
from torch import Tensor

from etude.engine.local import EngineCore
from etude.engine.protocol import Sample, SampleRequest
from etude.environment.environment import Environment
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, tool
from etude.learning.config import LearnerConfig, loss_preset
from etude.learning.learner import Learner
from etude.learning.rows import TrainingRow
from etude.model.load import load_model
from etude.rollout.agent import derive_seed
from etude.rollout.rollout import Rollout

STEPS = 6
MAX_TOKENS, MAX_TURNS, MAX_TOKENS_PER_TURN = 32, 3, 4


@dataclass
class Attempt:
    """One attempt of the plain loop: everything that was held, and what of it was sampled."""

    key: str
    scenario: Scenario
    seed: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    opened: int | None = None
    said: int | None = None
    turns: int = 0
    over: bool = False

    def request(self, group: str) -> SampleRequest:
        stops = frozenset(ID[word] for word in [*OPENS, *SAYS, "<end>"])
        seed = derive_seed(self.seed, self.turns)
        return SampleRequest(self.key, tuple(self.tokens), MAX_TOKENS_PER_TURN, stops, 1.0, seed, group)

    def observe(self, *words: str) -> None:
        self.tokens += [ID[word] for word in words]
        self.logprobs += [np.nan] * len(words)

    def take(self, sample: Sample) -> None:
        """One turn: what was sampled, then what the tools say to it."""
        self.tokens += sample.tokens
        self.logprobs += sample.logprobs
        self.turns += 1
        word = next(word for word, token in ID.items() if token == sample.tokens[-1])
        if word in SAYS:
            self.said = SAYS.index(word)
        if word in OPENS:
            self.opened = OPENS.index(word)
        self.over = sample.finish == "length" or self.said is not None or self.turns == MAX_TURNS
        if not self.over and word in OPENS:
            self.observe("<result>", VALUES[self.scenario["contents"][self.opened]], "<model>")
        elif not self.over:  # told to call a tool, in words that this world does not know
            self.observe("<user>", "<other>", "<model>")

    @property
    def reward(self) -> float:
        asked = self.scenario["asked"]
        right_drawer = self.opened == asked
        return float(right_drawer and self.said == self.scenario["contents"][asked]) + 0.3 * right_drawer


def plain_training(folder: Path, environment: Environment, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and optimizer state after STEPS steps: no event loop, no pool, no threads."""
    model = load_model(str(save_symbol_model(folder / "plain"))).model
    learner = Learner(model, LearnerConfig(loss=loss_preset("dapo"), lr=5e-3, max_tokens_per_microbatch=8192))
    core = EngineCore(model, max_slots=GROUPS * ROLLOUTS, max_context=MAX_TOKENS, version_of=lambda: learner.version)
    scenarios = environment.scenarios_of("train")
    for step in range(STEPS):
        rows: list[TrainingRow] = []
        groups = [play(seed, scenarios, step * GROUPS + number) for number in range(GROUPS)]
        while playing := [(attempt, group) for group in groups for attempt in group if not attempt.over]:
            requests = [attempt.request(group[0].key) for attempt, group in playing]
            for (attempt, _), sample in zip(playing, core.generate(requests), strict=True):
                attempt.take(sample)
                if attempt.over:
                    core.close(attempt.key)
        for group in groups:
            mean = np.mean([attempt.reward for attempt in group])
            for attempt in group:
                logprobs = np.array(attempt.logprobs, dtype=np.float32)
                rows.append(
                    TrainingRow(
                        tokens=np.array(attempt.tokens, dtype=np.int32),
                        action_mask=~np.isnan(logprobs),
                        logp_rollout=logprobs,
                        advantage=float(attempt.reward - mean),
                        trajectory=len(rows),
                    )
                )
        learner.step(rows)
    optimizer = {
        f"{name}.{part}": tensor
        for name, parts in learner.state_dict()["optimizer"].items()
        for part, tensor in parts.items()
    }
    return dict(model.state_dict()), optimizer


def play(seed: int, scenarios: list[Scenario], ticket: int) -> list[Attempt]:
    """The attempts at the ticket-th scenario, at their first prompts."""
    epoch, place = divmod(ticket, len(scenarios))
    scenario = scenarios[np.random.default_rng([seed, epoch]).permutation(len(scenarios))[place]]
    group = []
    for index in range(ROLLOUTS):
        key = f"train/{ticket:08d}/{index:04d}"
        attempt = Attempt(key, scenario, derive_seed(seed, "train", ticket, index, 0))
        attempt.observe("<user>", scenario["question"], "<model>")
        group.append(attempt)
    return group


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As the runs have it: sums over several threads add up in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.usefixtures("one_thread")
def test_on_policy_training_is_the_plain_loop_bit_for_bit(tmp_path: Path, seed: int) -> None:
    environment = drawers(scenarios=10)  # 24 tickets: epochs turn in the middle of a step
    run = train_drawers(tmp_path, steps=STEPS, environment=environment, seed=seed)
    weights, optimizer = plain_training(tmp_path, environment, seed)
    saved = weights_of(run.folder)
    assert_same_tensors(saved, {name: weights[name] for name in saved})
    assert_same_tensors(optimizer_of(run.folder), optimizer)
    untrained = load_model(str(tmp_path / "model")).model.state_dict()
    assert all(not saved[name].equal(untrained[name]) for name in saved), "nothing was learnt"


def slow_drawers(order: int) -> Environment:
    """The same world, whose tools and grader answer in an order of their own."""
    wait = random.Random(order)

    async def hesitate() -> None:
        for _ in range(wait.randrange(12)):
            await asyncio.sleep(0)

    @tool
    async def open_drawer(number: int, context: ToolContext) -> str:
        """Open a drawer."""
        await hesitate()
        context.state["opened"] = number
        return VALUES[context.scenario["contents"][number]]

    @tool(final=True)
    def say(number: int) -> str:
        """Say which value it is: in a thread, which ends when it ends."""
        return VALUES[number]

    async def hesitant(rollout: Rollout, scenario: Scenario) -> float:
        await hesitate()
        return await reward(rollout, scenario)

    return drawers(hesitant, tools=[open_drawer, say])


@pytest.mark.parametrize(
    ("sampling", "training"),
    [({}, {}), ({"staleness": 1}, {}), ({}, {"zero_variance": "refill"}), ({"staleness": 2}, {"eval_every": 2})],
    ids=["on-policy", "one step behind", "refill", "validated"],
)
def test_the_order_in_which_tools_answer_changes_nothing(
    tmp_path: Path, sampling: dict[str, int], training: dict[str, object]
) -> None:
    runs = [
        train_drawers(
            tmp_path / str(order), steps=4, environment=slow_drawers(order), sampling=sampling, training=training
        )
        for order in (1, 2)
    ]
    assert_same_tensors(*[weights_of(run.folder) for run in runs])
    assert_same_tensors(*[optimizer_of(run.folder) for run in runs])


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    first, second = (train_drawers(tmp_path / str(seed), steps=1, seed=seed) for seed in (0, 1))
    with pytest.raises(AssertionError, match="differ"):
        assert_same_tensors(weights_of(first.folder), weights_of(second.folder))
