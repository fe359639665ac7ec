"""Settings of loss and learner: presets as published, and combinations that cannot work."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from etude.errors import ConfigError
from etude.learning.config import LOSS_PRESETS, LearnerConfig, LossConfig, loss_preset
from etude.learning.optimizer import learning_rate


def test_presets() -> None:
    assert loss_preset("dapo") == LossConfig()
    assert (LossConfig().clip_low, LossConfig().clip_high, LossConfig().dual_clip) == (0.2, 0.28, 3.0)
    assert loss_preset("grpo").aggregation == "row"
    assert loss_preset("dr_grpo", max_completion_tokens=64).aggregation == "constant"
    gspo = loss_preset("gspo")
    assert (gspo.ratio, gspo.clip_low, gspo.clip_high) == ("sequence", 3e-4, 4e-4)
    assert loss_preset("cispo").surrogate == "cispo"
    assert loss_preset("reinforce").surrogate == "reinforce"
    assert all(loss_preset(name, max_completion_tokens=9).kl == "none" for name in LOSS_PRESETS)


def test_overrides_change_single_settings() -> None:
    assert loss_preset("grpo", kl="k3", kl_coefficient=0.04).kl_coefficient == 0.04
    with pytest.raises(ConfigError, match="unknown loss 'ppo'; choose one of grpo"):
        loss_preset("ppo")
    with pytest.raises(ConfigError, match="no setting clip_hi"):
        loss_preset("grpo", clip_hi=0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"behaviour": "tis"}, "twice"),
        ({"behaviour": "seq_mask", "anchor": "rollout"}, "twice"),
        ({"surrogate": "reinforce", "ratio": "sequence"}, "has no ratio"),
        ({"kl": "k3"}, "coefficient above 0"),
        ({"kl_coefficient": 0.1}, "give an estimator"),
        ({"aggregation": "constant"}, "max_completion_tokens"),
        ({"aggregation": "tokens"}, "choose one of 'token', 'row', 'constant'"),
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_high": float("nan")}, "clip_high"),
        ({"dual_clip": 1.1}, "dual_clip"),
        ({"cispo_high": 0.0}, "cispo_high"),
        ({"icepop_low": 1.5}, "icepop"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ],
)
def test_losses_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LossConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 0.0}, "learner.lr"),
        ({"temperature": 0.0}, "temperature"),
        ({"updates_per_batch": 0}, "updates_per_batch"),
        ({"schedule": "cosine"}, "total_steps"),
        ({"schedule": "linear", "total_steps": 5, "warmup_steps": 5}, "above warmup_steps"),
        ({"schedule": "sqrt"}, "choose one of"),
        ({"oversize": "cut"}, "choose one of"),
        ({"grad_clip": 0.0}, "null to turn clipping off"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"warmup_steps": -1}, "warmup_steps"),
    ],
)
def test_learners_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LearnerConfig(**settings)


def test_learning_rates() -> None:
    flat = LearnerConfig(lr=1.0, warmup_steps=4)
    assert [learning_rate(flat, step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    linear = LearnerConfig(lr=1.0, warmup_steps=1, schedule="linear", total_steps=5)
    assert [learning_rate(linear, step) for step in range(7)] == [1.0, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    cosine = LearnerConfig(lr=2.0, schedule="cosine", total_steps=4)
    assert [learning_rate(cosine, step) for step in (0, 2, 4)] == pytest.approx([2.0, 1.0, 0.0])


def test_settings_need_no_torch() -> None:
    modules = "etude.learning.config, etude.learning.advantages, etude.learning.rows"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
