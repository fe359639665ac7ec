"""A tool environment whose words are single tokens, so that a randomly initialised model stumbles on every move.

Three drawers, one of which the question names; each holds one of three values. `open` shows what a drawer holds, `say`
ends the attempt. Right is to open the drawer that was asked for, and to say what was in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from etude.environment.calls import ToolCall
from etude.environment.environment import Environment, Limits
from etude.environment.scenario import Scenario
from etude.environment.tools import ToolContext, tool
from etude.model.tiny import tiny_model
from etude.rollout.chat import CHAT_FORMATS
from etude.rollout.messages import Message
from etude.rollout.parsing import ParsedTurn
from etude.rollout.rollout import Rollout

COUNT = 3
DRAWERS = [f"drawer{n}" for n in range(COUNT)]
VALUES = [f"value{n}" for n in range(COUNT)]
OPENS = [f"open{n}" for n in range(COUNT)]
SAYS = [f"say{n}" for n in range(COUNT)]
WORDS = ["<pad>", "<end>", "<user>", "<model>", "<result>", *DRAWERS, *VALUES, *OPENS, *SAYS]
ID = {word: number for number, word in enumerate(WORDS)}


def symbol_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(ID, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>", unk_token="<pad>")


def save_symbol_model(folder: Path, seed: int) -> Path:
    """A random Llama of about 40 thousand parameters and its tokenizer, as a folder."""
    tokenizer = symbol_tokenizer()
    tiny_model(tokenizer, hidden=48, layers=1, heads=4, max_context=64, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class SymbolChat:
    """A call is one token, and ends the turn."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.stop_ids = frozenset(ID[word] for word in [*OPENS, *SAYS, "<end>"])

    def start(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        return [ID["<user>"], ID[messages[-1].content], ID["<model>"]]

    def extend(
        self,
        held: Sequence[int],
        messages: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
    ) -> list[int]:
        return [*held, ID["<result>"], *(ID.get(message.content, 0) for message in new), ID["<model>"]]

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
        call = message.tool_calls[0]
        return [ID[(OPENS if call.name == "open_drawer" else SAYS)[call.arguments["number"]]]]


CHAT_FORMATS["symbols"] = SymbolChat


@tool
def open_drawer(number: int, context: ToolContext) -> str:
    """Open a drawer."""
    context.state["opened"] = number
    return VALUES[context.scenario["contents"][number]]


@tool(final=True)
def say(number: int) -> int:
    """Say which value it is."""
    return number


def correct(rollout: Rollout, scenario: Scenario) -> float:
    asked = scenario["asked"]
    return float(rollout.answer == scenario["contents"][asked] and rollout.state.get("opened") == asked)


def reward(rollout: Rollout, scenario: Scenario) -> float:
    """1 for the right way; a little for the right drawer, so that there is a gradient before the first success."""
    return correct(rollout, scenario) + 0.3 * (rollout.state.get("opened") == scenario["asked"])


class ShuffledReward:
    """The same rewards, dealt out at random: each rollout gets the reward of some earlier one."""

    def __init__(self, seed: int) -> None:
        self.random, self.dealt = random.Random(seed), [0.0, 1.0]

    def __call__(self, rollout: Rollout, scenario: Scenario) -> float:
        self.dealt.append(reward(rollout, scenario))
        return self.random.choice(self.dealt)


def drawers(rubric: Callable[[Rollout, Scenario], float] = reward, scenarios: int = 64) -> Environment:
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
        tools=[open_drawer, say],
        rubric=rubric,
        scenarios={"train": rows(scenarios, 1), "validation": rows(32, 2)},
        limits=Limits(max_turns=3, max_tokens_per_turn=4, max_tokens=32),
        metrics=lambda rollout, scenario: {"answer_correct": correct(rollout, scenario)},
    )
