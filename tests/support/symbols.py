"""A tool environment whose words are single tokens, so that a randomly initialised model stumbles on every move.

Two drawers, one of which the question names; each holds one of two values. `open_drawer` shows what a drawer holds,
`say` ends the attempt. Right is to open the drawer that was asked for, and to say what was in it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import Tool, ToolContext, tool
from etude.grading.rubric import Grader, Rubric
from etude.model.tiny import tiny_model
from etude.rollout.chat import CHAT_FORMATS
from etude.rollout.messages import Message
from etude.rollout.parsing import ParsedTurn
from etude.rollout.rollout import Rollout

COUNT = 2
DRAWERS = [f"drawer{n}" for n in range(COUNT)]
VALUES = [f"value{n}" for n in range(COUNT)]
OPENS = [f"open{n}" for n in range(COUNT)]
SAYS = [f"say{n}" for n in range(COUNT)]
WORDS = ["<other>", "<end>", "<user>", "<model>", "<result>", *DRAWERS, *VALUES, *OPENS, *SAYS]
ID = {word: number for number, word in enumerate(WORDS)}


def symbol_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(ID, unk_token="<other>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<other>")


def symbol_model(seed: int = 0) -> LlamaForCausalLM:
    """A random Llama of about 20 thousand parameters."""
    return tiny_model(symbol_tokenizer(), hidden=48, layers=1, heads=4, max_context=64, seed=seed)


def save_symbol_model(folder: Path, seed: int = 0) -> Path:
    """The model and its tokenizer, as a folder."""
    symbol_model(seed).save_pretrained(folder)
    symbol_tokenizer().save_pretrained(folder)
    return folder


class SymbolChat:
    """A call is one token, and ends the turn. Texts that are no words of this world are all one token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase | None = None) -> None:
        self.stop_ids = frozenset(ID[word] for word in [*OPENS, *SAYS, "<end>"])

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        return self._write(messages)

    def extend(
        self,
        held: Sequence[int],
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> list[int]:
        return [*held, *self._write(new)]

    def parse(self, tokens: Sequence[int]) -> ParsedTurn:
        word = WORDS[tokens[-1]]
        for name, words in (("open_drawer", OPENS), ("say", SAYS)):
            if word in words:
                return ParsedTurn("", (ToolCall(name, {"number": words.index(word)}, "call_0"),), ())
        return ParsedTurn(word, (), ())

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(WORDS[token] for token in tokens)

    def count(self, text: str) -> int:
        return len(text.split())

    def cut(self, text: str, max_tokens: int) -> tuple[str, int, bool]:
        return text, self.count(text), False

    def render_assistant(self, message: Message) -> list[int]:
        words = {"open_drawer": OPENS, "say": SAYS}
        last = [words[call.name][call.arguments["number"]] for call in message.tool_calls] or ["<end>"]
        return [ID[word] for word in [*message.content.split(), *last]]

    def _write(self, messages: Sequence[Message]) -> list[int]:
        """The messages, and the beginning of the turn that follows them."""
        tokens: list[int] = []
        for message in messages:
            if message.role == "assistant":
                tokens += [ID["<model>"], *self.render_assistant(message)]
            elif message.role != "system":
                who = "<result>" if message.role == "tool" else "<user>"
                tokens += [ID[who], *self.content(message.content)]
        return [*tokens, ID["<model>"]]

    def content(self, text: str) -> list[int]:
        """What a message says, in tokens."""
        return [ID.get(text, ID["<other>"])]


CHAT_FORMATS["symbols"] = SymbolChat


@tool
async def open_drawer(number: int, context: ToolContext) -> str:
    """Open a drawer."""
    context.state["opened"] = number
    return VALUES[context.scenario["contents"][number]]


@tool(final=True)
async def say(number: int) -> str:
    """Say which value it is."""
    return VALUES[number]


def correct(rollout: Rollout, scenario: Scenario) -> float:
    asked = scenario["asked"]
    right = VALUES[scenario["contents"][asked]]
    return float(rollout.answer == right and rollout.state.get("opened") == asked)


async def reward(rollout: Rollout, scenario: Scenario) -> float:
    """1 for the right way; a little for the right drawer, so that there is a gradient before the first success."""
    return correct(rollout, scenario) + 0.3 * (rollout.state.get("opened") == scenario["asked"])


def drawers(
    rubric: Rubric | Grader = reward, scenarios: int = 64, tools: Sequence[Tool] = (open_drawer, say)
) -> Environment:
    def rows(count: int, seed: int) -> list[dict[str, Any]]:
        draw = random.Random(seed)
        made = []
        for _ in range(count):
            asked = draw.randrange(COUNT)
            contents = [draw.randrange(COUNT) for _ in range(COUNT)]
            made.append({"question": DRAWERS[asked], "asked": asked, "contents": contents})
        return made

    return Environment(
        name="drawers",
        instructions="",
        tools=tools,
        rubric=rubric,
        scenarios={"train": rows(scenarios, 1), "validation": rows(32, 2)},
        limits=Limits(max_turns=3, max_tokens_per_turn=4, max_tokens=32),
        metrics=lambda rollout, scenario: {"answer_correct": correct(rollout, scenario)},
    )
