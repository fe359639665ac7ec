"""Loading models, to train and to sample from in one process, and saving them in Hugging Face's format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import ModelError
from etude.model.lora import LoraSettings
from etude.model.shape import BYTES, MemoryEstimate, ModelShape, estimate_memory, read_shape
from etude.model.source import InstalledModel, ModelSource, installed_models, resolve_model

if TYPE_CHECKING:  # torch takes seconds to import; resolve_model and estimate_memory must answer at once
    import torch
    from torch import nn
    from transformers import PreTrainedTokenizerBase

__all__ = [
    "InstalledModel",
    "LoadedModel",
    "LoraSettings",
    "MemoryEstimate",
    "ModelShape",
    "ModelSource",
    "add_lora",
    "estimate_memory",
    "installed_models",
    "load_model",
    "load_weights",
    "parameter_count",
    "read_shape",
    "resolve_model",
    "save_model",
]

SAME_MATRIX = 0.2  # relative distance under which embedding and head are two quantisations of one matrix


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with Etude's attention, in evaluation mode (it has no dropout), and its tokenizer.

    model: a transformers model, or a peft one around it where it has an adapter."""

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    source: ModelSource


def load_model(
    name: str | ModelSource, *, dtype: str = "float32", device: str = "cpu", lora: LoraSettings | None = None
) -> LoadedModel:
    """Load a model to train: all its weights, or a LoRA adapter on frozen ones.

    dtype: of the weights, float32, bfloat16 or float16. lora: add a new adapter, whose start is drawn from torch's
    global generator. Where `name` is an adapter's folder, that adapter is trained on and lora must agree or be None.
    Raises ModelError.
    """
    import torch

    from etude.model.attention import use_etude_attention

    source = resolve_model(name) if isinstance(name, str) else name
    if dtype not in BYTES:
        raise ModelError(f"dtype {dtype!r} is not one of {', '.join(BYTES)}")
    base = source.base or source
    with _told(base):
        model, tokenizer = _load_base(base, getattr(torch, dtype))
        model.to(device)
    use_etude_attention(model)
    if source.base is not None:
        model = _load_adapter(model, source, lora)
    elif lora is not None:
        model = add_lora(model, lora, base_name=_lasting_name(source))
    model.eval()
    return LoadedModel(model, tokenizer, source)


def add_lora(model: nn.Module, lora: LoraSettings, *, base_name: str = "") -> nn.Module:
    """Freeze `model` and put a new adapter in it, which changes nothing yet. base_name: written beside saved adapters,
    so that they find their base again."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.projections), task_type="CAUSAL_LM"
    )
    adapted = get_peft_model(model, config)
    config.base_model_name_or_path = base_name
    return adapted


def save_model(loaded: LoadedModel, folder: Path, *, merged: bool = False) -> None:
    """Write weights and tokenizer in Hugging Face's format. Of a LoRA model, the adapter alone is written, or the whole
    model with the adapter in its weights where `merged` (which takes a copy of the model in memory)."""
    import copy

    from peft import PeftModel

    model: Any = loaded.model
    if not isinstance(model, PeftModel):
        model.save_pretrained(folder)
    elif merged:
        copy.deepcopy(model).merge_and_unload().save_pretrained(folder)
    else:
        # peft would ask the network whether the vocabulary has grown, to decide on saving embeddings
        model.save_pretrained(folder, save_embedding_layers=False)
    loaded.tokenizer.save_pretrained(folder)


def load_weights(loaded: LoadedModel, folder: Path) -> None:
    """Put back, in place and bit for bit, the weights that `save_model` wrote of this model. Raises ModelError."""
    import torch
    from peft import PeftModel, set_peft_model_state_dict
    from safetensors.torch import load_file

    model = loaded.model
    adapter = isinstance(model, PeftModel)
    files = sorted(folder.glob("adapter_model.safetensors" if adapter else "model*.safetensors"))
    if not files:
        raise ModelError(f"{folder} holds no weights of this {'adapter' if adapter else 'model'}")
    saved = {name: tensor for file in files for name, tensor in load_file(file).items()}
    with torch.no_grad(), _told(loaded.source):
        if adapter:
            unexpected = set_peft_model_state_dict(model, saved).unexpected_keys
            missing = set(_adapter_names(model)) - set(saved)
        else:
            unexpected = model.load_state_dict(saved, strict=False).unexpected_keys
            missing = {name for name, _ in model.named_parameters()} - set(saved)  # a tied matrix has one name here
    if missing or unexpected:
        raise ModelError(f"{folder} holds another model: {len(missing)} weights missing, {len(unexpected)} unknown")


def parameter_count(model: nn.Module) -> tuple[int, int]:
    """Weights, and those that train. A tied matrix counts once."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)


def _load_base(source: ModelSource, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoTokenizer

    if source.kind == "tiny":
        return _tiny(dtype)
    if source.kind == "gguf" and source.path is not None:
        return _load_gguf(source.path, dtype)
    place = source.name if source.path is None else str(source.path)
    local = source.path is not None
    model = _load_whole(place, dtype=dtype, local_files_only=local)
    return model, AutoTokenizer.from_pretrained(place, local_files_only=local)


def _tiny(dtype: torch.dtype) -> tuple[Any, Any]:
    from etude.model.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer(call_tokens=True)
    return tiny_model(tokenizer).to(dtype), tokenizer


def _load_gguf(file: Path, dtype: torch.dtype) -> tuple[Any, Any]:
    """GGUF keeps weights quantised unless told otherwise, and those cannot train."""
    from transformers import AutoTokenizer, GgufConfig

    model = _load_whole(
        str(file.parent), gguf_file=file.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True)
    )
    model.config._name_or_path = str(file)
    _tie_twin_matrices(model)
    return model, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def _load_whole(place: str, **options: Any) -> Any:
    """transformers fills weights that a file lacks with random numbers; that is refused here."""
    from transformers import AutoModelForCausalLM

    model, found = AutoModelForCausalLM.from_pretrained(place, output_loading_info=True, **options)
    if missing := sorted(found["missing_keys"]):
        raise ValueError(f"its files lack {len(missing)} weights, such as {missing[0]}")
    return model


def _tie_twin_matrices(model: Any) -> None:
    """Some GGUF files hold the embedding of a tied model twice, the head less coarsely quantised: make it one again."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if embedding is head or (embedding - head).float().norm() > SAME_MATRIX * head.float().norm():
        return
    embedding.data.copy_(head.data)
    model.config.tie_word_embeddings = True
    model.tie_weights()


def _load_adapter(model: nn.Module, source: ModelSource, lora: LoraSettings | None) -> nn.Module:
    from peft import PeftModel

    with _told(source):
        adapted = PeftModel.from_pretrained(model, str(source.path), is_trainable=True)
    config = adapted.peft_config["default"]
    saved = (config.r, float(config.lora_alpha), set(config.target_modules))
    if lora is not None and saved != (lora.rank, float(lora.alpha), set(lora.projections)):
        raise ModelError(
            f"adapter {source.name} has rank {config.r}, alpha {config.lora_alpha:g} on "
            f"{', '.join(sorted(config.target_modules))}: set model.lora to the same, or leave it out"
        )
    return adapted


def _adapter_names(model: Any) -> Iterator[str]:
    from peft import get_peft_model_state_dict

    yield from get_peft_model_state_dict(model, save_embedding_layers=False)


def _lasting_name(source: ModelSource) -> str:
    """A name of the model that holds in every working directory."""
    on_disk = source.path is not None and Path(source.name).expanduser().exists()
    return str(source.path.resolve()) if on_disk and source.path else source.name


@contextmanager
def _told(source: ModelSource) -> Iterator[None]:
    """Turns what loaders raise for a file that is broken, foreign or too large into one error that names it."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError, KeyError, ImportError, RuntimeError, AttributeError) as error:
        raise ModelError(f"model {source.name!r} cannot be loaded: {error}") from error
