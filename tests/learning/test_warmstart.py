"""Supervised warm start: Hugging Face's own loss is the twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from etude.learning.config import LearnerConfig
from etude.learning.learner import Learner
from etude.learning.rows import TrainingRow
from etude.learning.warmstart import sft_loss, trace_rows

MakeModel = Callable[..., nn.Module]
MakeRows = Callable[..., list[TrainingRow]]
# With these AdamW's first step is the gradient itself.
PLAIN_DESCENT = LearnerConfig(lr=1e9, eps=1e9, betas=(0.0, 0.0), grad_clip=None, temperature=0.5)


def traces(rows: list[TrainingRow]) -> list[TrainingRow]:
    return trace_rows((row.tokens.tolist(), row.action_mask.tolist()) for row in rows)


@pytest.mark.parametrize("limit", [1, 40, 10_000])
def test_a_supervised_step_follows_the_gradient_of_hugging_faces_loss(
    limit: int, make_model: MakeModel, make_rows: MakeRows
) -> None:
    rows = traces(make_rows(5))
    plain, model = make_model(plain=True), make_model()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    total = sum(row.num_actions for row in rows)
    loss = torch.zeros((), dtype=torch.float64)
    for row in rows:
        tokens = torch.from_numpy(row.tokens.astype(np.int64))[None]
        labels = torch.where(torch.from_numpy(row.action_mask)[None], tokens, -100)
        loss = loss + plain(input_ids=tokens, labels=labels).loss * row.num_actions / total
    loss.backward()

    learner = Learner(model, replace(PLAIN_DESCENT, max_tokens_per_microbatch=limit))
    stats = learner.sft_step(rows)
    assert stats.loss == pytest.approx(loss.item(), rel=1e-6)
    assert (stats.rows, stats.action_tokens, stats.version) == (5, total, 1)
    for name, value in plain.named_parameters():
        torch.testing.assert_close(before[name] - model.get_parameter(name), value.grad, rtol=1e-5, atol=1e-7)


def test_sft_loss_by_hand() -> None:
    logp, weights = torch.tensor([-1.0, -2.0, -6.0]), torch.full((3,), 1 / 3)
    assert sft_loss(logp, weights).item() == pytest.approx(3.0)


def test_a_trace_is_learnt_by_heart(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = traces(make_rows(2))
    learner = Learner(make_model(torch.float32), LearnerConfig(lr=3e-2))
    losses = [learner.sft_step(rows).loss for _ in range(60)]
    assert losses[0] > 5
    assert losses[-1] < 0.2


def test_traces_cannot_be_reinforced_by_mistake(make_model: MakeModel, make_rows: MakeRows) -> None:
    with pytest.raises(ValueError, match="traces are for sft_step"):
        Learner(make_model(), LearnerConfig()).step(traces(make_rows(2)))


def test_a_broken_trace_is_named_by_its_place() -> None:
    with pytest.raises(ValueError, match="trajectory 1 has no action"):
        trace_rows([([1, 2], [False, True]), ([1, 2], [False, False])])
    with pytest.raises(ValueError, match="at least one row"):
        Learner(nn.Linear(2, 2), LearnerConfig()).sft_step([])
