"""A model's size read from its configuration, and the memory that training it takes: without loading, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import huggingface_hub

from etude.errors import ModelError
from etude.model.lora import LoraSettings
from etude.model.source import ModelSource

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder of the Llama family. max_context: positions it was made for.

    attention_bias: query, key and value projections have one (Qwen2). head_norm: queries and keys are normed (Qwen3).
    tied: the head is the embedding."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    max_context: int
    tied: bool
    attention_bias: bool = False
    head_norm: bool = False

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each linear map of one layer, by its name in transformers."""
        queries, states = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "q_proj": (self.hidden, queries),
            "k_proj": (self.hidden, states),
            "v_proj": (self.hidden, states),
            "o_proj": (queries, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    @property
    def parameters(self) -> int:
        """Number of weights, a tied matrix counted once."""
        linear = sum(inputs * outputs for inputs, outputs in self.projections.values())
        bias = sum(self.projections[name][1] for name in ("q_proj", "k_proj", "v_proj")) if self.attention_bias else 0
        norms = 2 * self.hidden + (2 * self.head_dim if self.head_norm else 0)
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (linear + bias + norms) + self.hidden

    def adapter_parameters(self, lora: LoraSettings) -> int:
        """Weights of a LoRA adapter: rank * (inputs + outputs) for each adapted map."""
        return self.layers * sum(lora.rank * sum(self.projections[name]) for name in lora.projections)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of one training process, and the weights that they come from."""

    parameters: int
    trainable: int
    weights: int
    gradients: int
    optimizer: int
    cache: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.cache + self.activations


def estimate_memory(
    source: ModelSource, *, dtype: str, lora: LoraSettings | None, slots: int, context: int, batch_tokens: int
) -> MemoryEstimate:
    """Estimate what a run takes, from the configuration alone.

    slots, context: rows of the engine's KV cache and tokens held in each (an upper bound: the cache grows as needed).
    batch_tokens: tokens of one forward and backward pass. Weights, their gradients and the cache are in `dtype`; an
    adapter and AdamW's two moments are float32. Activations: what autograd keeps for a token, counted on a Llama layer:
    6 hidden-size vectors, 4 intermediate ones and 5 of all heads. Logits are computed in chunks and left out.
    Raises ModelError for a model whose configuration cannot be read.
    """
    shape = read_shape(source)
    width = BYTES[dtype]
    adapter = shape.adapter_parameters(lora) if lora else 0
    trainable = adapter or shape.parameters
    layer_states = 6 * shape.hidden + 4 * shape.intermediate + 5 * shape.heads * shape.head_dim
    return MemoryEstimate(
        parameters=shape.parameters + adapter,
        trainable=trainable,
        weights=shape.parameters * width + adapter * 4,
        gradients=trainable * (4 if adapter else width),
        optimizer=trainable * 2 * 4,
        cache=2 * shape.layers * slots * context * shape.kv_heads * shape.head_dim * width,
        activations=batch_tokens * shape.layers * layer_states * width,
    )


def read_shape(source: ModelSource) -> ModelShape:
    """The model's sizes from config.json (fetched, where the model is not in the cache yet) or the GGUF header."""
    if source.base is not None:
        return read_shape(source.base)
    if source.kind == "tiny":
        return _shape_of_config(_tiny_config())
    if source.kind == "gguf" and source.path is not None:
        return _shape_of_gguf(source.path)
    try:
        file = source.path / "config.json" if source.path else _download_config(source.name)
        return _shape_of_config(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"model {source.name!r}: config.json does not describe a Llama-like decoder ({error!r})"
        ) from error


def _tiny_config() -> dict[str, Any]:
    from etude.model.tiny import tiny_model, tiny_tokenizer

    return tiny_model(tiny_tokenizer(call_tokens=True)).config.to_dict()


def _download_config(name: str) -> Path:
    return Path(huggingface_hub.hf_hub_download(name, "config.json"))


def _shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    heads = config["num_attention_heads"]
    kind = config["model_type"]
    return ModelShape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        intermediate=config["intermediate_size"],
        max_context=config["max_position_embeddings"],
        tied=config.get("tie_word_embeddings", False),
        attention_bias=config.get("attention_bias", kind == "qwen2"),
        head_norm=kind == "qwen3",
    )


def _shape_of_gguf(path: Path) -> ModelShape:
    """Field names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md"""
    try:
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name for tensor in reader.tensors}
        architecture = _field(reader, "general.architecture")
        heads, hidden = (
            _field(reader, f"{architecture}.{key}") for key in ("attention.head_count", "embedding_length")
        )
        return ModelShape(
            vocab=len(reader.fields["tokenizer.ggml.tokens"].data),
            hidden=hidden,
            layers=_field(reader, f"{architecture}.block_count"),
            heads=heads,
            kv_heads=_field(reader, f"{architecture}.attention.head_count_kv", heads),
            head_dim=_field(reader, f"{architecture}.attention.key_length", hidden // heads),
            intermediate=_field(reader, f"{architecture}.feed_forward_length"),
            max_context=_field(reader, f"{architecture}.context_length"),
            tied="output.weight" not in tensors,
            attention_bias="blk.0.attn_q.bias" in tensors,
            head_norm="blk.0.attn_q_norm.weight" in tensors,
        )
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{path} is not a GGUF file of a Llama-like decoder ({error!r})") from error


def _field(reader: Any, name: str, default: Any = None) -> Any:
    field = reader.fields.get(name)
    if field is None and default is None:
        raise KeyError(name)
    return default if field is None else field.contents()
