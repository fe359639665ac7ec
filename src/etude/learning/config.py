"""Settings of the loss and of the learner: frozen, checked when made, importable without torch.

The advantage is an axis of its own (`etude.learning.advantages`): GRPO as published is the loss preset "grpo" with
the advantage kind "grpo", Dr.GRPO is "dr_grpo" with "mean".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, get_args

from etude.errors import ConfigError

RatioLevel = Literal["token", "sequence"]
Surrogate = Literal["clip", "cispo", "reinforce"]
Anchor = Literal["rollout", "old"]
BehaviourWeight = Literal["none", "tis", "icepop", "seq_mask"]
KLEstimator = Literal["none", "k1", "k2", "k3"]
Aggregation = Literal["token", "row", "constant"]
Schedule = Literal["constant", "linear", "cosine"]
Oversize = Literal["own", "refuse"]


def _check_choice(owner: str, name: str, value: object, choices: Any) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{owner}.{name} is {value!r}; choose one of {', '.join(map(repr, allowed))}")


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


@dataclass(frozen=True, slots=True)
class LossConfig:
    """One policy-gradient loss, as a point on independent axes. The defaults are DAPO's, with a dual clip.

    With r = exp(logp - anchor) at a token, or its geometric mean over the action tokens of a trajectory:

    ratio: "token", or "sequence" (GSPO, arXiv:2507.18071).
    surrogate: "clip" is PPO's max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), and where A < 0 at most
        -A dual_clip (arXiv:1912.09729; None turns that off); "cispo" is -min(r, 1 + cispo_high) A logp with the
        ratio detached (arXiv:2506.13585); "reinforce" is -A logp.
    anchor: the log-probabilities that r starts from: "rollout", as the engine reported them when it sampled, or
        "old", the learner's own before the first update on the batch.
    behaviour: with anchor "old", corrects old against rollout by w = exp(logp_old - logp_rollout), detached:
        "tis" min(w, tis_cap); "icepop" w within icepop_low..icepop_high and 0 outside; "seq_mask" 1 for rows whose
        geometric mean of w is within seq_mask_low..seq_mask_high, and 0 for the others.
    kl: the penalty against the reference policy, kl_coefficient times k1 = d, k2 = d^2 / 2 or k3 = exp(-d) - 1 + d
        with d = logp - logp_ref (Schulman, "Approximating KL divergence"). As a loss, only k2 has the gradient of
        KL(now || reference) in expectation: k1's is zero, k3's is that of KL(reference || now). It is not weighted
        by `behaviour`, so rejected tokens are still held to the reference.
    aggregation: the weight of every action token, see `etude.learning.losses.token_weights`.
        max_completion_tokens is the divisor of "constant", and needed there only.

    Raises ConfigError for values and combinations that cannot work.
    """

    ratio: RatioLevel = "token"
    surrogate: Surrogate = "clip"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 3.0
    cispo_high: float = 4.0
    anchor: Anchor = "rollout"
    behaviour: BehaviourWeight = "none"
    tis_cap: float = 2.0
    icepop_low: float = 0.5
    icepop_high: float = 5.0
    seq_mask_low: float = 0.999
    seq_mask_high: float = 1.002
    kl: KLEstimator = "none"
    kl_coefficient: float = 0.0
    aggregation: Aggregation = "token"
    max_completion_tokens: int | None = None

    def __post_init__(self) -> None:
        choices = {"ratio": RatioLevel, "surrogate": Surrogate, "anchor": Anchor, "behaviour": BehaviourWeight,
                   "kl": KLEstimator, "aggregation": Aggregation}  # fmt: skip
        for name, allowed in choices.items():
            _check_choice("loss", name, getattr(self, name), allowed)
        self._check_values()
        self._check_combinations()

    def _check_values(self) -> None:
        _check(0 < self.clip_low < 1, f"loss.clip_low is {self.clip_low}; it must lie between 0 and 1")
        _check(0 < self.clip_high < math.inf, f"loss.clip_high is {self.clip_high}; it must be above 0")
        _check(0 < self.cispo_high < math.inf, f"loss.cispo_high is {self.cispo_high}; it must be above 0")
        _check(
            self.dual_clip is None or 1 + self.clip_high <= self.dual_clip < math.inf,
            f"loss.dual_clip is {self.dual_clip}; it must be at least 1 + clip_high, or null to turn it off",
        )
        _check(0 < self.tis_cap < math.inf, f"loss.tis_cap is {self.tis_cap}; it must be above 0")
        for name in ("icepop", "seq_mask"):
            low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
            _check(0 <= low <= 1 <= high, f"loss.{name}_low..{name}_high is {low}..{high}; it must hold 1")
        _check(
            self.max_completion_tokens is None or self.max_completion_tokens > 0,
            f"loss.max_completion_tokens is {self.max_completion_tokens}; it must be above 0",
        )

    def _check_combinations(self) -> None:
        _check(
            self.anchor == "old" or self.behaviour == "none",
            f"loss.anchor 'rollout' with loss.behaviour {self.behaviour!r} corrects the same difference twice: the "
            "ratio already starts from the engine's log-probabilities; use anchor 'old', or behaviour 'none'",
        )
        _check(
            self.ratio == "token" or self.surrogate != "reinforce",
            "loss.surrogate 'reinforce' has no ratio, so loss.ratio 'sequence' would do nothing; use 'clip' or 'cispo'",
        )
        _check(
            (self.kl == "none" and self.kl_coefficient == 0)
            or (self.kl != "none" and 0 < self.kl_coefficient < math.inf),
            f"loss.kl is {self.kl!r} with loss.kl_coefficient {self.kl_coefficient}; "
            "give an estimator and a coefficient above 0, or neither",
        )
        _check(
            self.aggregation != "constant" or self.max_completion_tokens is not None,
            "loss.aggregation 'constant' divides by loss.max_completion_tokens; set it to the most tokens that "
            "a rollout may sample",
        )


# As published, except that the KL penalty is off unless it is asked for.
LOSS_PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # DeepSeekMath, arXiv:2402.03300
        "grpo": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "aggregation": "row"},
        # Understanding R1-Zero-like training, arXiv:2503.20783; needs max_completion_tokens
        "dr_grpo": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None, "aggregation": "constant"},
        # arXiv:2503.14476; the dual clip is ours
        "dapo": {},
        # arXiv:2507.18071
        "gspo": {
            "ratio": "sequence",
            "clip_low": 3e-4,
            "clip_high": 4e-4,
            "dual_clip": None,
            "aggregation": "row",
        },
        # MiniMax-M1, arXiv:2506.13585
        "cispo": {"surrogate": "cispo", "cispo_high": 4.0},
        # Williams 1992, normalised over the batch's tokens
        "reinforce": {"surrogate": "reinforce"},
    }
)


def loss_preset(name: str, **overrides: Any) -> LossConfig:
    """A loss by its published name, with single settings changed. Raises ConfigError for an unknown name or setting."""
    if name not in LOSS_PRESETS:
        raise ConfigError(f"unknown loss {name!r}; choose one of {', '.join(LOSS_PRESETS)}")
    unknown = sorted(set(overrides) - set(LossConfig.__dataclass_fields__))
    if unknown:
        known = ", ".join(LossConfig.__dataclass_fields__)
        raise ConfigError(f"a loss has no setting {', '.join(unknown)}; it has {known}")
    return LossConfig(**{**LOSS_PRESETS[name], **overrides})


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """How a batch becomes a change of weights.

    lr: peak learning rate. betas, eps, weight_decay: AdamW's; only matrices decay.
    grad_clip: largest norm of the whole gradient (None: no clipping).
    warmup_steps: steps over which the rate rises linearly from lr / warmup_steps.
    schedule: "constant", or after the warm-up down to 0 at total_steps, "linear" or "cosine".
    max_tokens_per_microbatch: how many packed tokens go through the model at once: memory, never the result.
    oversize: a row longer than that gets a micro-batch of its own ("own") or is refused ("refuse").
    temperature: that of the sampling; logits are divided by it before the softmax.
    logp_chunk: action tokens whose logits exist at a time.
    entropy: whether the policy's entropy is measured (costs one more pass over each chunk's logits).
    updates_per_batch: optimizer updates on one batch.
    gradient_checkpointing: recompute each layer in the backward pass; less memory, about a third more time.
    """

    loss: LossConfig = field(default_factory=LossConfig)
    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float | None = 1.0
    warmup_steps: int = 0
    schedule: Schedule = "constant"
    total_steps: int | None = None
    max_tokens_per_microbatch: int = 4096
    oversize: Oversize = "own"
    temperature: float = 1.0
    logp_chunk: int = 512
    entropy: bool = True
    updates_per_batch: int = 1
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        _check_choice("learner", "schedule", self.schedule, Schedule)
        _check_choice("learner", "oversize", self.oversize, Oversize)
        for name in ("lr", "eps", "temperature"):
            value = getattr(self, name)
            _check(0 < value < math.inf, f"learner.{name} is {value}; it must be above 0")
        for name in ("max_tokens_per_microbatch", "logp_chunk", "updates_per_batch"):
            value = getattr(self, name)
            _check(value >= 1, f"learner.{name} is {value}; it must be at least 1")
        _check(all(0 <= beta < 1 for beta in self.betas), f"learner.betas is {self.betas}; each must lie in [0, 1)")
        _check(0 <= self.weight_decay < 1, f"learner.weight_decay is {self.weight_decay}; it must lie in [0, 1)")
        _check(
            self.grad_clip is None or 0 < self.grad_clip < math.inf,
            f"learner.grad_clip is {self.grad_clip}; it must be above 0, or null to turn clipping off",
        )
        _check(self.warmup_steps >= 0, f"learner.warmup_steps is {self.warmup_steps}; it cannot be negative")
        if self.schedule != "constant":
            _check(
                self.total_steps is not None and self.total_steps > self.warmup_steps,
                f"learner.schedule {self.schedule!r} ends at learner.total_steps, which is {self.total_steps}; "
                f"set it above warmup_steps ({self.warmup_steps})",
            )
