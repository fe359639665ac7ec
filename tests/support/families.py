"""Tiny models of the families that Etude trains, each with an independent copy in transformers' own attention."""

from __future__ import annotations

import copy
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from etude.model.attention import use_etude_attention

VOCAB = 61
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,  # so that distributions are far from flat
    "attn_implementation": "eager",
}
FAMILIES = {
    "llama": LlamaConfig(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, **SIZES),
    "llama-mha": LlamaConfig(num_attention_heads=2, num_key_value_heads=2, tie_word_embeddings=False, **SIZES),
    "qwen2": Qwen2Config(num_attention_heads=4, num_key_value_heads=1, **SIZES),
    "qwen3": Qwen3Config(num_attention_heads=4, num_key_value_heads=2, head_dim=16, **SIZES),
    "llama-lora": LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **SIZES),
}


def model_pair(family: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, nn.Module]:
    """The same weights twice: with Etude's attention, and with transformers' eager attention."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        reference: nn.Module = AutoModelForCausalLM.from_config(FAMILIES[family]).to(dtype).eval()
        for name, parameter in reference.named_parameters():
            if name.endswith("bias"):  # which start at zero, where they would test nothing
                nn.init.normal_(parameter, std=0.3)
        if family.endswith("lora"):
            settings = LoraConfig(r=3, target_modules="all-linear", init_lora_weights=False)
            reference = get_peft_model(reference, settings).eval()
    model = copy.deepcopy(reference)
    use_etude_attention(model)
    return model, reference


def backbone_of(reference: nn.Module) -> nn.Module:
    base = reference.get_base_model() if isinstance(reference, PeftModel) else reference
    return base.model  # type: ignore[no-any-return, union-attr]


@torch.no_grad()
def plain_logits(reference: nn.Module, tokens: list[int]) -> Tensor:
    """Logits [tokens, vocab] in float64 of a plain forward pass over one sequence."""
    return reference(input_ids=torch.tensor([tokens])).logits[0].double()
