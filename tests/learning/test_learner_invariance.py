"""However a batch is cut into micro-batches, and in whatever order its rows come, the weights change alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from etude.learning.config import LOSS_PRESETS, LearnerConfig, loss_preset
from etude.learning.learner import Learner, StepStats
from etude.learning.losses import LossInputs, policy_loss, token_weights
from etude.learning.rows import TrainingRow

MakeModel = Callable[..., nn.Module]
MakeRows = Callable[..., list[TrainingRow]]

# With these AdamW's first step is the gradient itself: w - eps * g / (|g| + eps), so weights show gradients.
PLAIN_DESCENT: dict[str, Any] = {"lr": 1e9, "eps": 1e9, "betas": (0.0, 0.0), "grad_clip": None}
LOSSES = {name: loss_preset(name, max_completion_tokens=40) for name in LOSS_PRESETS} | {
    "grpo-kl": loss_preset("grpo", kl="k3", kl_coefficient=0.1),
    "old-tis": loss_preset("dapo", anchor="old", behaviour="tis"),
    "old-icepop": loss_preset("cispo", anchor="old", behaviour="icepop", icepop_low=0.7, icepop_high=1.3),
    "old-seq_mask": loss_preset("gspo", anchor="old", behaviour="seq_mask", seq_mask_low=0.9, seq_mask_high=1.1),
}


def gradients(model: nn.Module, rows: list[TrainingRow], config: LearnerConfig) -> tuple[dict[str, Tensor], StepStats]:
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    stats = Learner(model, config).step(rows)
    return {name: before[name] - value.detach() for name, value in model.named_parameters()}, stats


@pytest.mark.parametrize("name", LOSSES)
def test_any_split_gives_the_same_loss_and_gradients(name: str, make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = make_rows(10, rows_each=2 if LOSSES[name].ratio == "sequence" else 1)
    config = LearnerConfig(loss=LOSSES[name], logp_chunk=7, **PLAIN_DESCENT)
    whole, stats = gradients(make_model(), rows, replace(config, max_tokens_per_microbatch=10_000))
    assert stats.micro_batches == 1
    assert max(value.abs().max().item() for value in whole.values()) > 1e-3
    for limit in (1, 45):
        split, split_stats = gradients(make_model(), rows, replace(config, max_tokens_per_microbatch=limit))
        assert split_stats.micro_batches > 1
        for parameter in whole:
            torch.testing.assert_close(split[parameter], whole[parameter], rtol=1e-9, atol=1e-12)
        wanted = stats.metrics() | {"micro_batches": split_stats.micro_batches}
        assert split_stats.metrics() == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["dapo", "gspo", "old-icepop"])
def test_float32_agrees_with_float64(name: str, make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = make_rows(6, rows_each=2 if LOSSES[name].ratio == "sequence" else 1)
    config = LearnerConfig(loss=LOSSES[name], max_tokens_per_microbatch=30, **PLAIN_DESCENT)
    exact, _ = gradients(make_model(), rows, config)
    rough, _ = gradients(make_model(torch.float32), rows, config)
    for parameter in exact:
        torch.testing.assert_close(rough[parameter].double(), exact[parameter], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["dapo", "grpo", "gspo", "cispo"])
def test_the_step_is_the_formula_over_full_logits_row_by_row(
    name: str, make_model: MakeModel, make_rows: MakeRows
) -> None:
    """Twin: Hugging Face's own model, one row at a time, one loss over everything at once."""
    rows = make_rows(6, rows_each=2)
    config = LearnerConfig(loss=LOSSES[name], max_tokens_per_microbatch=30, temperature=0.8, **PLAIN_DESCENT)
    found, stats = gradients(make_model(), rows, config)

    plain = make_model(plain=True)
    parts = []
    for row in rows:
        tokens = torch.from_numpy(row.tokens.astype(np.int64))
        logits = plain(input_ids=tokens[None]).logits[0] / 0.8
        parts.append(logits[:-1].log_softmax(-1).gather(-1, tokens[1:, None])[:, 0][row.action_mask[1:]])
    counts = [len(part) for part in parts]

    def spread(values: Any) -> Tensor:
        return torch.from_numpy(np.repeat(np.asarray(values), counts))

    inputs = LossInputs(
        logp_rollout=torch.from_numpy(np.concatenate([row.logp_rollout[row.action_mask] for row in rows])).double(),
        advantages=spread([row.advantage for row in rows]),
        weights=spread(token_weights(counts, config.loss)),
        trajectory=spread([row.trajectory for row in rows]),
        row=spread(range(len(rows))),
    )
    loss, _ = policy_loss(torch.cat(parts), inputs, config.loss)
    loss.backward()
    assert stats.loss == pytest.approx(loss.item(), rel=1e-6)
    for parameter, value in plain.named_parameters():
        torch.testing.assert_close(found[parameter], value.grad, rtol=1e-6, atol=1e-8)


def test_rows_without_advantage_count_in_the_denominator_only(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = [replace(row, advantage=1.0) for row in make_rows(4)]
    flat = [replace(row, advantage=0.0) for row in rows]
    config = LearnerConfig(loss=LOSSES["reinforce"], **PLAIN_DESCENT)
    alone, _ = gradients(make_model(), rows, config)
    diluted, stats = gradients(make_model(), rows + flat, config)
    assert (stats.rows, stats.trained_rows) == (8, 4)
    for parameter in alone:
        torch.testing.assert_close(diluted[parameter], alone[parameter] / 2, rtol=1e-6, atol=1e-9)


def test_with_a_kl_rows_without_advantage_are_trained(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = [replace(row, advantage=0.0) for row in make_rows(3)]
    learner = Learner(make_model(), LearnerConfig(loss=LOSSES["grpo-kl"]))
    assert learner.step(rows).trained_rows == 3
