"""The bundled model's tokenizer: byte-level BPE of few tokens, trained on generated mail, questions and calls.

Digits stand alone, capitalised words stand apart from the space before them, and names fall into syllables: so a name
is the same tokens wherever it stands, and copying it from a mail into a call is copying tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from etude.errors import ConfigError
from etude.recipes.email_demo.corpus import generate
from etude.recipes.email_demo.tools import RESULTS
from etude.recipes.email_demo.traces import clumsy_traces
from etude.recipes.email_demo.views import COMPACT
from etude.rollout.compact import CALL, END, SPECIAL_TOKENS, render_compact_call

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD = "<|pad|>"
VOCAB_SIZE = 1536
# Many small companies, so that no name is common enough to become a token of its own.
COMPANIES, MAILS, QUESTIONS = 300, 60, 20

_PIECES = r"\d| ?[a-z_]+|[A-Z][a-z]+|[A-Z]| ?[^\sA-Za-z0-9]+|\s+"


def tokenizer_texts(companies: int = COMPANIES) -> Iterator[str]:
    """Questions, calls and results of attempts in companies that no other part of pretraining uses."""
    for number in range(companies):
        corpus = generate("pretrain", -1 - number, inboxes=1, mails_per_inbox=MAILS, questions=QUESTIONS)
        for trace in clumsy_traces(corpus, number, skill=0.5, results=RESULTS, view=COMPACT):
            yield trace.question["question"]
            for step in trace.steps:
                yield render_compact_call(step.call).removeprefix(CALL)
                yield step.shown


def train_tokenizer(texts: Iterable[str], *, vocab_size: int = VOCAB_SIZE) -> PreTrainedTokenizerFast:
    """A tokenizer with the tokens of the chat format "compact"; the same texts give the same one. Raises ConfigError
    where vocab_size has no room for the bytes and those tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    added = [AddedToken(text, special=True, normalized=False) for text in (PAD, *SPECIAL_TOKENS)]
    added.append(AddedToken(CALL, special=False, normalized=False))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if vocab_size < len(alphabet) + len(added):
        raise ConfigError(f"vocab_size is {vocab_size}, but bytes and control tokens are {len(alphabet) + len(added)}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added), initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(list(texts), trainer)  # a list: iterators are read in a thread of its own
    tokenizer.add_tokens(added)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=str(END), pad_token=PAD, clean_up_tokenization_spaces=False
    )
