"""The model: a small Llama, made, run on rectangular batches, and written as a Hugging Face folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from etude.model.attention import backbone, output_head, repeat_heads, use_etude_attention
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.recipe import MAX_TOKENS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTEXT = 1024
REPORT = "pretraining.json"
IGNORED = -100


class CausalRows:
    """An attention plan: every row of the batch is one sequence, padded on the right."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        attended = F.scaled_dot_product_attention(
            query, repeat_heads(key, groups), repeat_heads(value, groups), is_causal=True, scale=scaling
        )
        return attended.transpose(1, 2)


def make_model(settings: PretrainSettings, tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    """Float32 weights from the settings' seed, with Etude's attention."""
    assert MAX_TOKENS <= CONTEXT
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(settings.seed)
    model = LlamaForCausalLM(config).float()
    use_etude_attention(model)
    return model


def token_losses(
    model: LlamaForCausalLM, tokens: Int[Tensor, "rows length"], inside: Bool[Tensor, "rows length"]
) -> Float[Tensor, "rows length-1"]:
    """Cross-entropy of every token but the first of its row, in nats; 0 where not `inside`."""
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)[None]
    states = backbone(model)(
        input_ids=tokens[:, :-1], position_ids=positions, use_cache=False, attention_plan=CausalRows()
    )
    logits = output_head(model)(states.last_hidden_state).float()
    targets = tokens[:, 1:].masked_fill(~inside[:, 1:], IGNORED)
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view(targets.shape)


def write_model(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path, report: Mapping[str, Any]
) -> None:
    """config.json, model.safetensors in bfloat16, the tokenizer, and `report` as pretraining.json."""
    copy = LlamaForCausalLM(model.config).to(torch.bfloat16)
    copy.load_state_dict(model.state_dict())
    copy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")
