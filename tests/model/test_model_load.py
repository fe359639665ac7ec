"""Loading, adapting, saving and sizing models: what is written is what is read back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.families import FAMILIES, VOCAB, model_pair
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from etude.errors import ConfigError, ModelError
from etude.model.attention import output_head, packed_hidden
from etude.model.load import (
    LoadedModel,
    LoraSettings,
    add_lora,
    estimate_memory,
    load_model,
    load_weights,
    parameter_count,
    read_shape,
    resolve_model,
    save_model,
)
from etude.model.source import ModelSource
from etude.model.tiny import tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer(vocab_size=300)
LORA = LoraSettings(rank=2, alpha=4.0)


@torch.no_grad()
def logits(model: nn.Module) -> Tensor:
    tokens = torch.arange(7) % VOCAB
    return output_head(model)(packed_hidden(model, tokens, [4, 3]))


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@torch.no_grad()
def disturb(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def saved_folder(family: str, folder: Path) -> Path:
    _, reference = model_pair(family)
    reference.save_pretrained(folder)  # type: ignore[operator]
    TOKENIZER.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", ["llama", "llama-mha", "qwen2", "qwen3"])
def test_a_saved_model_is_loaded_and_saved_again_bit_for_bit(family: str, tmp_path: Path) -> None:
    loaded = load_model(str(saved_folder(family, tmp_path / "first")))
    assert not loaded.model.training
    assert torch.equal(logits(loaded.model), logits(model_pair(family)[0]))
    save_model(loaded, tmp_path / "second")
    again = load_model(str(tmp_path / "second"))
    assert weights_of(again.model).keys() == weights_of(loaded.model).keys()
    assert all(torch.equal(value, weights_of(again.model)[name]) for name, value in weights_of(loaded.model).items())
    assert again.tokenizer("a call").input_ids == TOKENIZER("a call").input_ids
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "second")  # anybody's, with attention of their choice
    assert "etude" not in (tmp_path / "second" / "config.json").read_text()
    assert plain(input_ids=torch.arange(4)[None]).logits.shape == (1, 4, VOCAB)


@pytest.mark.parametrize("lora", [None, LORA])
def test_weights_are_put_back_in_place_bit_for_bit(lora: LoraSettings | None, tmp_path: Path) -> None:
    loaded = load_model("tiny-random", lora=lora)
    disturb(loaded.model)
    held = list(loaded.model.parameters())
    saved, before = weights_of(loaded.model), logits(loaded.model)
    save_model(loaded, tmp_path)
    disturb(loaded.model)
    assert not torch.equal(logits(loaded.model), before)
    load_weights(loaded, tmp_path)
    assert all(torch.equal(value, saved[name]) for name, value in loaded.model.named_parameters())
    assert torch.equal(logits(loaded.model), before)
    assert all(one is other for one, other in zip(held, loaded.model.parameters(), strict=True))  # the optimizer's


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    tiny = load_model("tiny-random")
    with pytest.raises(ModelError, match="holds no weights of this model"):
        load_weights(tiny, tmp_path)
    save_model(LoadedModel(tiny_model(TOKENIZER, layers=1), TOKENIZER, tiny.source), tmp_path / "other")
    with pytest.raises(ModelError, match=r"size mismatch|holds another model"):
        load_weights(tiny, tmp_path / "other")
    save_model(load_model("tiny-random", lora=LoraSettings(2, 4.0, "attention")), tmp_path / "adapter")
    with pytest.raises(ModelError, match="holds another model: 12 weights missing, 0 unknown"):
        load_weights(load_model("tiny-random", lora=LORA), tmp_path / "adapter")


def test_a_new_adapter_changes_nothing_and_alone_trains() -> None:
    plain = load_model("tiny-random")
    adapted = load_model("tiny-random", lora=LORA)
    assert torch.equal(logits(adapted.model), logits(plain.model))
    total, trainable = parameter_count(adapted.model)
    inputs_and_outputs = 2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128)  # query and output, key and value, the rest
    assert trainable == LORA.rank * 2 * inputs_and_outputs  # two layers
    assert total - trainable == parameter_count(plain.model)[0]
    assert all("lora" in name for name, value in adapted.model.named_parameters() if value.requires_grad)


def test_an_adapter_is_saved_alone_and_trained_on(tmp_path: Path) -> None:
    base = saved_folder("qwen2", tmp_path / "base")
    loaded = load_model(str(base), lora=LORA)
    disturb(loaded.model)
    save_model(loaded, tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    again = load_model(str(tmp_path / "adapter"), lora=LORA)
    assert torch.equal(logits(again.model), logits(loaded.model))
    assert parameter_count(again.model) == parameter_count(loaded.model)
    with pytest.raises(ModelError, match=r"has rank 2, alpha 4 on down_proj.*set model\.lora to the same"):
        load_model(str(tmp_path / "adapter"), lora=LoraSettings(rank=3, alpha=4.0))


def test_a_merged_model_needs_no_adapter(tmp_path: Path) -> None:
    loaded = load_model(str(saved_folder("llama", tmp_path / "base")), lora=LORA)
    disturb(loaded.model)
    before = weights_of(loaded.model)
    save_model(loaded, tmp_path / "merged", merged=True)
    merged = load_model(str(tmp_path / "merged"))
    torch.testing.assert_close(logits(merged.model), logits(loaded.model), rtol=0, atol=1e-4)
    assert parameter_count(merged.model)[0] == parameter_count(model_pair("llama")[0])[0]
    assert all(torch.equal(value, before[name]) for name, value in loaded.model.named_parameters())


def test_files_that_are_not_a_model_are_told_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(tmp_path))
    save_file({"model.norm.weight": torch.ones(8)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["llama"].to_dict() | {"hidden_size": 8}))
    with pytest.raises(ModelError, match=r"its files lack 20 weights, such as lm_head"):
        load_model(str(tmp_path))
    (tmp_path / "broken.gguf").write_bytes(b"not gguf either, but long enough to be read as a header")
    with pytest.raises(ModelError, match=r"broken\.gguf' cannot be loaded"):
        load_model(str(tmp_path / "broken.gguf"))
    with pytest.raises(ModelError, match=r"broken\.gguf is not a GGUF file"):
        read_shape(resolve_model(str(tmp_path / "broken.gguf")))
    with pytest.raises(ModelError, match="dtype 'int8' is not one of float32, bfloat16, float16"):
        load_model("tiny-random", dtype="int8")


def test_lora_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"lora\.rank is 0"):
        LoraSettings(rank=0, alpha=1.0)
    with pytest.raises(ConfigError, match=r"lora\.targets is 'mlp'"):
        LoraSettings(rank=1, alpha=1.0, targets="mlp")  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["llama", "llama-mha", "qwen2", "qwen3"])
def test_the_shape_counts_the_weights_that_loading_finds(family: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES[family].to_dict()))
    shape = read_shape(ModelSource(family, "folder", tmp_path))
    model, _ = model_pair(family)
    assert shape.parameters == parameter_count(model)[0]
    assert shape.adapter_parameters(LORA) == parameter_count(add_lora(model, LORA))[1]
    assert shape.max_context == 512


def test_memory_of_full_and_adapter_training() -> None:
    source = resolve_model("tiny-random")
    parameters = parameter_count(load_model("tiny-random").model)[0]
    sizes = {"slots": 8, "context": 100, "batch_tokens": 1000}
    full = estimate_memory(source, dtype="float32", lora=None, **sizes)  # type: ignore[arg-type]
    assert (full.parameters, full.trainable) == (parameters, parameters)
    assert (full.weights, full.gradients, full.optimizer) == (4 * parameters, 4 * parameters, 8 * parameters)
    assert full.cache == 2 * 2 * 8 * 100 * 32 * 4  # keys and values, layers, slots, tokens, 2 heads of 16, bytes
    adapter = estimate_memory(source, dtype="bfloat16", lora=LORA, **sizes)  # type: ignore[arg-type]
    assert adapter.trainable == adapter.parameters - parameters
    assert adapter.weights == 2 * parameters + 4 * adapter.trainable
    assert adapter.cache == full.cache // 2
    assert adapter.total == sum(
        (adapter.weights, adapter.gradients, adapter.optimizer, adapter.cache, adapter.activations)
    )


def write_gguf(file: Path, model: Qwen2ForCausalLM, head: Tensor | None) -> None:
    """A GGUF file as llama.cpp's converter lays it out. head: written beside the embedding where it is given."""
    config = model.config
    writer = gguf.GGUFWriter(file, "qwen2")
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    vocabulary = json.loads(TOKENIZER.backend_tokenizer.to_str())["model"]
    tokens = [token for token, _ in sorted(TOKENIZER.get_vocab().items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([" ".join(merge) for merge in vocabulary["merges"]])
    writer.add_eos_token_id(TOKENIZER.eos_token_id)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(names.get_name(name, (".weight", ".bias")), value.numpy())
    if head is not None:
        writer.add_tensor("output.weight", head.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("head", ["none", "twin", "other"])
def test_a_gguf_file_is_loaded_to_train(head: str, tmp_path: Path) -> None:
    """A head that is the embedding, quantised otherwise, is tied to it again; another stays its own."""
    config = Qwen2Config(
        vocab_size=len(TOKENIZER),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    embedding = model.get_input_embeddings().weight.detach()
    noise = torch.randn(embedding.shape, generator=torch.Generator().manual_seed(0)) * embedding.std()
    heads = {"none": None, "twin": embedding + 0.03 * noise, "other": noise}
    file = tmp_path / "tiny.gguf"
    write_gguf(file, model, heads[head])
    shape = read_shape(resolve_model(str(file)))
    assert (shape.vocab, shape.layers, shape.kv_heads, shape.tied) == (len(TOKENIZER), 1, 1, head == "none")

    loaded = load_model(str(file))
    expected = {"none": embedding, "twin": heads["twin"], "other": embedding}[head]
    np.testing.assert_array_equal(loaded.model.get_input_embeddings().weight.detach(), expected)  # type: ignore[operator]
    tied = output_head(loaded.model).weight is loaded.model.get_input_embeddings().weight  # type: ignore[operator]
    assert tied == (head != "other")
    assert all(parameter.requires_grad for parameter in loaded.model.parameters())
    save_model(loaded, tmp_path / "saved")
    again = load_model(str(tmp_path / "saved"))
    assert torch.equal(logits(again.model), logits(loaded.model))
    assert parameter_count(again.model) == parameter_count(loaded.model)
