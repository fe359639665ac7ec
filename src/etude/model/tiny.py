"""A randomly initialised model and a small tokenizer, for tests and tutorials: nothing to download."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from etude.errors import ConfigError

CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CALL_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

# What an agent of a few tools says, so that role names, call markup and JSON punctuation are few tokens.
DEFAULT_CORPUS = (
    "system\nuser\nassistant\ntool\n",
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n<tools>\n</tools>\n",
    '<tool_call>\n{"name": "search", "arguments": {"query": "meeting", "limit": 10}}\n</tool_call>\n',
    '<tool_call>\n{"name": "read", "arguments": {"id": "12"}}\n</tool_call>\n',
    '<tool_response>\n{"id": "12", "date": "2001-05-04", "subject": "Re: contract"}\n</tool_response>\n',
    '{"type": "function", "function": {"name": "answer", "description": "", "parameters": {"type": "object", '
    '"properties": {"text": {"type": "string"}}, "required": ["text"]}}}\n',
    "The answer is 42. The quick brown fox jumps over the lazy dog. What is the date of the meeting?\n",
)


def tiny_tokenizer(
    *, vocab_size: int = 512, corpus: Sequence[str] = DEFAULT_CORPUS, call_tokens: bool = False
) -> PreTrainedTokenizerFast:
    """A byte-level BPE trained on `corpus`, with ChatML's tokens: it encodes every text and gives it back unchanged.

    vocab_size: upper bound, special tokens included (a small corpus has fewer merges); at least 256 bytes and the
    added tokens. call_tokens: also hold `<tool_call>`, `</tool_call>`, `<tool_response>`, `</tool_response>` as added
    tokens that are not special, as Qwen's tokenizers do. The same arguments give the same tokenizer.
    Raises ConfigError where vocab_size is too small.
    """
    added = [AddedToken(text, special=True, normalized=False) for text in CHATML_TOKENS]
    if call_tokens:
        added += [AddedToken(text, special=False, normalized=False) for text in CALL_TOKENS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    needed = len(alphabet) + len(added)
    if vocab_size < needed:
        raise ConfigError(f"tiny_tokenizer: vocab_size is {vocab_size}; bytes and added tokens alone need {needed}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=vocab_size - len(added),
            initial_alphabet=sorted(alphabet),
            special_tokens=[],
            show_progress=False,
        ),
    )
    tokenizer.add_tokens(added)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
    )


def tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    max_context: int = 4096,
    seed: int = 0,
) -> LlamaForCausalLM:
    """A Llama with random float32 weights: under 0.2M parameters with the defaults and `tiny_tokenizer()`.

    hidden: width, a multiple of 2 * heads (rotary embeddings turn pairs). heads: query heads; key-value heads are half
    of them, at least one. The same arguments give the same weights, and the global random state is left as it was.
    Raises ConfigError for a width that the heads do not divide.
    """
    if hidden % (2 * heads):
        raise ConfigError(f"tiny_model: hidden is {hidden}, which is not a multiple of 2 * heads = {2 * heads}")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        max_position_embeddings=max_context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).float().eval()
