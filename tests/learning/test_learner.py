"""The learner: what a step changes and reports, that it repeats bit for bit, resumes, and refuses what is broken."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from etude.errors import ConfigError, ModelError, TrainingError
from etude.learning.config import LearnerConfig, LossConfig, loss_preset
from etude.learning.learner import Learner
from etude.learning.rows import TrainingRow

MakeModel = Callable[..., nn.Module]
MakeRows = Callable[..., list[TrainingRow]]
FAST = LearnerConfig(lr=1e-2, max_tokens_per_microbatch=40)
WITH_KL = LossConfig(kl="k2", kl_coefficient=0.5)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


def test_a_step_makes_good_tokens_likelier_and_bad_ones_less_likely(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = make_rows(4, noise=0.0)
    learner = Learner(make_model(torch.float32), FAST)
    before = learner.logprobs(rows)
    stats = learner.step(rows)
    after = learner.logprobs(rows)
    assert learner.version == stats.version == 1
    for row, old, new in zip(rows, before, after, strict=True):
        gain = np.nansum(new - old)
        assert gain > 0 if row.advantage > 0 else gain < 0 if row.advantage < 0 else True
    assert stats.ratio_mean == pytest.approx(1.0, abs=1e-5)
    assert stats.grad_norm > 0
    assert stats.learning_rate == 1e-2
    assert stats.action_tokens == sum(row.num_actions for row in rows if row.advantage != 0)


def test_logprobs_have_the_layout_of_the_rows(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = make_rows(5, noise=0.0)
    for row, logp in zip(rows, Learner(make_model(), FAST).logprobs(rows), strict=True):
        np.testing.assert_array_equal(np.isnan(logp), ~row.action_mask)
        np.testing.assert_allclose(logp[row.action_mask], row.logp_rollout[row.action_mask], rtol=1e-5, atol=1e-5)


def test_the_gap_between_engine_and_learner_is_that_of_fresh_tokens(make_model: MakeModel, make_rows: MakeRows) -> None:
    exact = [replace(row, advantage=1.0) for row in make_rows(3, noise=0.0)]
    off, stale = exact[0].logp_rollout.copy(), exact[1].logp_rollout.copy()
    first = int(np.flatnonzero(exact[0].action_mask)[0])
    off[first] += 0.25
    rows = [
        replace(exact[0], logp_rollout=off),
        replace(exact[1], logp_rollout=stale - 1, version=np.full(len(stale), 7, dtype=np.int32)),
        replace(exact[2], version=np.zeros(len(exact[2]), dtype=np.int32)),
    ]
    stats = Learner(make_model(), FAST).step(rows)
    fresh = exact[0].num_actions + exact[2].num_actions
    assert stats.gap_max == pytest.approx(0.25, abs=1e-5)
    assert stats.gap_mean == pytest.approx(0.25 / fresh, abs=1e-5)
    assert stats.behaviour_k1 == pytest.approx((0.25 - exact[1].num_actions) / (fresh + exact[1].num_actions), abs=1e-5)


def test_what_was_not_measured_is_left_out(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = [replace(row, version=np.full(len(row), 9, dtype=np.int32)) for row in make_rows(2)]
    metrics = Learner(make_model(), replace(FAST, entropy=False)).step(rows).metrics()
    assert not {"entropy", "reference_kl", "gap_mean", "gap_max"} & metrics.keys()
    assert all(math.isfinite(value) for value in metrics.values())
    vocabulary = make_model().get_output_embeddings().weight.shape[0]
    entropy = Learner(make_model(), FAST).step(rows).entropy
    assert entropy is not None
    assert 0.9 * math.log(vocabulary) < entropy <= math.log(vocabulary)


@pytest.mark.parametrize("lora", [0, 4])
def test_the_same_steps_give_the_same_bits(lora: int, make_model: MakeModel, make_rows: MakeRows) -> None:
    config = replace(FAST, loss=WITH_KL, updates_per_batch=2)
    runs = []
    for _ in range(2):
        model = make_model(torch.float32, lora=lora)
        learner = Learner(model, config)
        stats = [learner.step(make_rows(5, seed=seed)) for seed in range(3)]
        runs.append((weights_of(model), stats))
    assert_same(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


@pytest.mark.parametrize("lora", [0, 4])
def test_a_resumed_learner_goes_on_bit_for_bit(
    lora: int, make_model: MakeModel, make_rows: MakeRows, tmp_path: Path
) -> None:
    config = replace(FAST, loss=WITH_KL, schedule="cosine", total_steps=6, warmup_steps=2, weight_decay=0.1)
    model = make_model(torch.float32, lora=lora)
    learner = Learner(model, config)
    for seed in range(2):
        learner.step(make_rows(4, seed=seed))
    torch.save(learner.state_dict(), tmp_path / "state.pt")
    expected = [learner.step(make_rows(4, seed=seed)) for seed in (2, 3)]

    resumed_model = make_model(torch.float32, lora=lora)
    resumed = Learner(resumed_model, config)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert resumed.version == 2
    assert [resumed.step(make_rows(4, seed=seed)) for seed in (2, 3)] == expected
    assert_same(weights_of(resumed_model), weights_of(model))


def test_a_fresh_state_can_be_saved_and_loaded(make_model: MakeModel, make_rows: MakeRows) -> None:
    first, second = Learner(make_model(), FAST), Learner(make_model(), FAST)
    second.step(make_rows(2))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.version == 0
    assert second.step(make_rows(2)) == first.step(make_rows(2))


def test_only_the_adapter_is_trained_and_saved(make_model: MakeModel, make_rows: MakeRows) -> None:
    model = make_model(torch.float32, lora=4)
    before = weights_of(model)
    learner = Learner(model, FAST)
    learner.step(make_rows(3))
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if "lora_" in name}
    assert set(learner.state_dict()["weights"]) == changed == set(learner.state_dict()["optimizer"])


def test_a_state_of_another_model_is_refused(make_model: MakeModel, make_rows: MakeRows) -> None:
    adapter = Learner(make_model(torch.float32, lora=4), FAST)
    full = Learner(make_model(torch.float32), FAST)
    with pytest.raises(ModelError, match="other trainable parameters"):
        full.load_state_dict(adapter.state_dict())
    with pytest.raises(ModelError, match=r"torch.float64 in the checkpoint and .* torch.float32 in the model"):
        full.load_state_dict(Learner(make_model(), FAST).state_dict())
    full.step(make_rows(2))
    broken = copy.deepcopy(full.state_dict())
    broken["optimizer"].popitem()
    with pytest.raises(ModelError, match="the optimizer state belongs to other"):
        full.load_state_dict(broken)


@pytest.mark.parametrize("lora", [0, 4])
def test_the_reference_stays_where_training_started(lora: int, make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = [replace(row, advantage=0.0) for row in make_rows(3)]
    model = make_model(lora=lora)
    start = Learner(make_model(), FAST).logprobs(rows)  # of the base model: the adapter's start is random here
    learner = Learner(model, replace(FAST, loss=LossConfig(kl="k1", kl_coefficient=0.5)))
    if not lora:
        assert learner.step(rows).reference_kl == pytest.approx(0.0, abs=1e-6)
    now = learner.logprobs(rows)
    moved = [np.nansum(new - old) for new, old in zip(now, start, strict=True)]
    expected = sum(moved) / sum(row.num_actions for row in rows)
    assert abs(expected) > 1e-4
    assert learner.step(rows).reference_kl == pytest.approx(expected, abs=1e-5)


def test_a_kl_pulls_the_policy_back(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = [replace(row, advantage=1.0) for row in make_rows(3, noise=0.0)]
    distance = {}
    for coefficient in (0.01, 50.0):
        learner = Learner(make_model(), replace(FAST, loss=LossConfig(kl="k2", kl_coefficient=coefficient)))
        distance[coefficient] = [learner.step(rows).reference_kl for _ in range(6)][-1]
    assert distance[50.0] < distance[0.01] / 2


def test_updates_on_one_batch_keep_the_log_probabilities_of_before(make_model: MakeModel, make_rows: MakeRows) -> None:
    """With anchor "old" the first update's ratio is 1 whatever the engine said; the second's is not."""
    rows = make_rows(4, noise=0.5)
    config = replace(FAST, loss=LossConfig(anchor="old"), lr=5e-2)
    once = Learner(make_model(), config).step(rows)
    assert once.ratio_mean == once.ratio_max == 1.0
    model = make_model()
    learner = Learner(model, replace(config, updates_per_batch=2))
    first = Learner(make_model(), config)
    before = first.logprobs(rows)
    first.step(rows)
    after = first.logprobs(rows)
    trained = [index for index, row in enumerate(rows) if row.advantage != 0]
    ratios = np.concatenate([np.exp(after[index] - before[index])[rows[index].action_mask] for index in trained])
    twice = learner.step(rows)
    assert twice.ratio_mean == pytest.approx((1 + ratios.mean()) / 2, rel=1e-5)
    assert learner.version == 1


def test_the_gradient_is_clipped_and_its_norm_reported_as_it_was(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = make_rows(3)
    plain: dict[str, Any] = {"lr": 1e9, "eps": 1e9, "betas": (0.0, 0.0)}  # a first step of AdamW that is the gradient
    moves = {}
    for clip in (None, 1e-3):
        model = make_model()
        before = weights_of(model)
        norm = Learner(model, LearnerConfig(grad_clip=clip, **plain)).step(rows).grad_norm
        moves[clip] = math.sqrt(
            sum((value - before[name]).square().sum().item() for name, value in model.named_parameters())
        )
        assert norm > 1e-2
    assert moves[None] == pytest.approx(norm, rel=1e-4)
    assert moves[1e-3] == pytest.approx(1e-3, rel=1e-2)


def test_only_matrices_decay(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = [replace(row, advantage=0.0) for row in make_rows(2)]  # no gradient at all: what changes is the decay
    model = make_model()
    before = weights_of(model)
    stats = Learner(model, replace(FAST, weight_decay=0.5)).step(rows)
    assert (stats.trained_rows, stats.grad_norm, stats.loss, stats.ratio_mean) == (0, 0.0, 0.0, None)
    for name, value in model.named_parameters():
        factor = 1 - 1e-2 * 0.5 if value.ndim >= 2 else 1.0
        torch.testing.assert_close(value.detach(), before[name] * factor)


@pytest.mark.parametrize("lora", [0, 4])
def test_gradient_checkpointing_changes_memory_only(lora: int, make_model: MakeModel, make_rows: MakeRows) -> None:
    results = []
    for on in (False, True):
        model = make_model(lora=lora)
        calls: list[int] = []
        (layer,) = [part for name, part in model.named_modules() if name.endswith("layers.0.mlp")]
        layer.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        Learner(model, replace(FAST, gradient_checkpointing=on, max_tokens_per_microbatch=10_000)).step(make_rows(4))
        assert not model.training
        results.append((weights_of(model), len(calls)))
    assert_same(results[0][0], results[1][0])
    assert [calls for _, calls in results] == [1, 2]  # once more, in the backward pass


def test_a_loss_that_is_not_a_number_leaves_the_weights(make_model: MakeModel, make_rows: MakeRows) -> None:
    model = make_model(torch.float32)
    learner = Learner(model, FAST)
    rows = make_rows(4, seed=1)
    with torch.no_grad():
        model.get_input_embeddings().weight[int(rows[1].tokens[0])] = float("nan")
    before = weights_of(model)
    with pytest.raises(TrainingError, match=r"the loss is nan at version 0, in the micro-batch of trajectories .*101"):
        learner.step(rows)
    assert learner.version == 0
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), before[name], rtol=0, atol=0, equal_nan=True)
        assert value.grad is None


def test_a_gradient_that_is_not_finite_leaves_the_weights(make_model: MakeModel, make_rows: MakeRows) -> None:
    model = make_model(torch.float32)
    learner = Learner(model, FAST)
    before = weights_of(model)
    model.model.norm.weight.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(TrainingError, match=r"norm of the gradient is (nan|inf), first in model.norm.weight \(1 param"):
        learner.step(make_rows(3))
    assert_same(weights_of(model), before)
    assert learner.version == 0
    assert all(value.grad is None for value in model.parameters())


def test_models_that_cannot_be_trained_are_refused(make_model: MakeModel) -> None:
    with pytest.raises(ConfigError, match="no trainable parameter"):
        Learner(make_model().requires_grad_(False), FAST)
    model = make_model()
    model.model.layers[1].mlp.add_module("drop", nn.Dropout(0.1))
    with pytest.raises(ConfigError, match=r"dropout \(in model.layers.1.mlp.drop\)"):
        Learner(model, FAST)


def test_batches_that_cannot_be_trained_are_refused(make_model: MakeModel, make_rows: MakeRows) -> None:
    learner = Learner(make_model(), replace(FAST, max_tokens_per_microbatch=8, oversize="refuse"))
    rows = make_rows(3)
    with pytest.raises(TrainingError, match="a batch without rows"):
        learner.step([])
    unsampled = replace(rows[1], logp_rollout=np.full(len(rows[1]), np.nan, dtype=np.float32))
    with pytest.raises(ValueError, match=r"trajectory 101: an action token has no finite logp_rollout"):
        learner.step([rows[0], unsampled])
    with pytest.raises(TrainingError, match="do not fit a micro-batch of 8"):
        learner.step(rows)
    assert learner.version == 0


def test_gspo_keeps_a_trajectory_of_several_rows_together(make_model: MakeModel, make_rows: MakeRows) -> None:
    rows = make_rows(4, rows_each=2, noise=0.01)
    loss = loss_preset("gspo")
    stats = Learner(make_model(), replace(FAST, loss=loss, max_tokens_per_microbatch=1)).step(rows)
    assert stats.micro_batches == 2
