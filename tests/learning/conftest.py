"""Tiny models and random rows for the learner's tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import PreTrainedTokenizerFast

from etude.learning.rows import TrainingRow
from etude.model.attention import use_etude_attention
from etude.model.tiny import tiny_model, tiny_tokenizer

ModelFactory = Callable[..., nn.Module]
RowsFactory = Callable[..., list[TrainingRow]]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer(vocab_size=300)


@pytest.fixture(scope="session")
def make_model(tokenizer: PreTrainedTokenizerFast) -> ModelFactory:
    """make_model(dtype, lora=rank, plain=True for Hugging Face's own attention): the same weights every time."""

    def make(dtype: torch.dtype = torch.float64, *, lora: int = 0, plain: bool = False) -> nn.Module:
        model: nn.Module = tiny_model(tokenizer, hidden=16, layers=2, heads=2, seed=3).to(dtype)
        if lora:
            with torch.random.fork_rng():
                torch.manual_seed(5)
                model = get_peft_model(model, LoraConfig(r=lora, target_modules="all-linear", init_lora_weights=False))
        if not plain:
            use_etude_attention(model)
        return model

    return make


@pytest.fixture(scope="session")
def make_rows(make_model: ModelFactory) -> RowsFactory:
    """make_rows(count, noise=..., rows_each=...): random rows with two action spans each; logp_rollout is the tiny
    model's own (by a plain forward pass), off by normal noise."""

    def make(count: int = 6, *, noise: float = 0.3, rows_each: int = 1, seed: int = 0) -> list[TrainingRow]:
        random = np.random.default_rng(seed)
        reference = make_model(plain=True)
        rows = []
        for index in range(count):
            length = int(random.integers(6, 24))
            tokens = random.integers(0, 256, length).astype(np.int32)
            mask = np.zeros(length, dtype=bool)
            mask[2 : int(random.integers(3, 5))] = True
            mask[int(random.integers(5, length)) :] = True
            with torch.no_grad():
                logits = reference(input_ids=torch.from_numpy(tokens.astype(np.int64))[None]).logits[0]
            exact = logits.log_softmax(-1)[torch.arange(length - 1), torch.from_numpy(tokens[1:].astype(np.int64))]
            logp = np.full(length, np.nan, dtype=np.float32)
            logp[1:] = exact.numpy() + noise * random.standard_normal(length - 1)
            logp[~mask] = np.nan
            trajectory = index // rows_each
            advantage = (-1.0, 0.5, 1.25, 0.0)[trajectory % 4]
            rows.append(TrainingRow(tokens, mask, logp, advantage, trajectory=100 + trajectory))
        return rows

    return make
