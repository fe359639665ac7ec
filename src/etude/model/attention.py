"""One attention function for learner and engine, put into unchanged Hugging Face models.

transformers lets a model call an attention function by name and hands it the keyword arguments of the model's
`forward`. Etude registers one function, "etude", which hands queries, keys and values to the `AttentionPlan` that
came with the call. There are two plans: `PackedSegments` (here: training, several sequences end to end) and the
engine's plan over its KV slots. The model's own code stays as it is, LoRA layers included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from etude.errors import ModelError

IMPLEMENTATION = "etude"


class AttentionPlan(Protocol):
    """What the tokens of one forward pass may attend to."""

    def attend(
        self,
        layer: int,
        query: Float[Tensor, "1 heads tokens dim"],
        key: Float[Tensor, "1 kv_heads tokens dim"],
        value: Float[Tensor, "1 kv_heads tokens dim"],
        scaling: float,
    ) -> Float[Tensor, "1 tokens heads dim"]: ...


class PackedSegments:
    """Causal attention within each of several sequences laid end to end, and none between them.

    Each segment is its own scaled-dot-product call, so that its result does not depend on its neighbours.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        # split, not slices: the gradient of one split is one concatenation, that of n slices is n full-size buffers
        segments = zip(*(torch.split(states, self.lengths, dim=2) for states in (query, key, value)), strict=True)
        attended = [
            F.scaled_dot_product_attention(
                q, repeat_heads(k, groups), repeat_heads(v, groups), is_causal=True, scale=scaling
            )
            for q, k, v in segments
        ]
        return torch.cat(attended, dim=2).transpose(1, 2)


def repeat_heads(
    states: Float[Tensor, "rows kv_heads tokens dim"], groups: int
) -> Float[Tensor, "rows heads tokens dim"]:
    """Give each of a key's (value's) `groups` query heads its copy: grouped-query attention, written out."""
    return states if groups == 1 else states.repeat_interleave(groups, dim=1)


def use_etude_attention(model: nn.Module) -> None:
    """Make `model` (a causal language model, plain or in peft) run with Etude's attention.

    Afterwards it runs through `packed_hidden` or an engine only. Raises ModelError where the model's attention is
    more than causal scaled-dot-product over the whole context (sliding windows, soft caps, dropout, encoders).
    """
    base = _base_model(model)
    _refuse_other_attention(base.config)
    base.set_attn_implementation(IMPLEMENTATION)


def run_backbone(
    model: nn.Module, tokens: Int[Tensor, "tokens"], positions: Int[Tensor, "tokens"], plan: AttentionPlan
) -> Float[Tensor, "tokens hidden"]:
    """Final hidden states (after the last norm, before the head) of a flat batch of tokens under an attention plan."""
    output = backbone(model)(
        input_ids=tokens.unsqueeze(0), position_ids=positions.unsqueeze(0), use_cache=False, attention_plan=plan
    )
    return output.last_hidden_state.squeeze(0)


def packed_hidden(
    model: nn.Module, tokens: Int[Tensor, "tokens"], lengths: Sequence[int]
) -> Float[Tensor, "tokens hidden"]:
    """Final hidden states of sequences laid end to end; equal to running each alone, in values and gradients.

    lengths: tokens of each sequence, in order; positions restart at 0 in each. The states are those after the last
    norm: `output_head(model)` makes logits of them. Raises ValueError where lengths do not sum to the tokens.
    """
    if sum(lengths) != tokens.numel() or min(lengths, default=0) < 1:
        raise ValueError(f"lengths {list(lengths)} (each at least 1) must sum to the {tokens.numel()} tokens")
    positions = torch.cat([torch.arange(length, device=tokens.device) for length in lengths])
    return run_backbone(model, tokens, positions, PackedSegments(lengths))


def backbone(model: nn.Module) -> nn.Module:
    """The decoder under the head. LoRA layers sit inside it, so calling it needs no peft wrapper."""
    return _base_model(model).base_model


def output_head(model: nn.Module) -> nn.Module:
    """The linear map from hidden states to logits (tied to the embedding or not)."""
    return _base_model(model).get_output_embeddings()


def _base_model(model: nn.Module) -> PreTrainedModel:
    """The Hugging Face model itself, out of peft's wrapper."""
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    if not isinstance(base, PreTrainedModel):
        raise ModelError(f"{type(model).__name__} is not a transformers model: load it with etude.model.load_model")
    return base


def _refuse_other_attention(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    reasons = {
        f"layers of {', '.join(sorted(kinds))}": kinds != {"full_attention"},
        "a soft cap on attention scores": getattr(config, "attn_logit_softcapping", None) is not None,
        "attention dropout": bool(getattr(config, "attention_dropout", 0.0)),
        "an encoder": bool(getattr(config, "is_encoder_decoder", False)),
    }
    if found := [reason for reason, present in reasons.items() if present]:
        raise ModelError(
            f"{config.model_type} model has {' and '.join(found)}; Etude trains decoders with causal attention over "
            "the whole context (Llama, Qwen2, Qwen3 and their like)"
        )


def _etude_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    attention_plan: AttentionPlan | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer. Masks come from the plan alone."""
    if attention_plan is None:
        raise ModelError("a model with Etude's attention runs through etude.model.packed_hidden or an engine")
    layer: int = module.layer_idx  # type: ignore[assignment]  # nn.Module types every attribute as Tensor | Module
    return attention_plan.attend(layer, query, key, value, scaling), None


ALL_ATTENTION_FUNCTIONS.register(IMPLEMENTATION, _etude_attention)
