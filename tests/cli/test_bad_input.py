"""What a person can get wrong, through the command line: one clear message, its own exit code, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lives import Nursery
from support.symbols import save_symbol_model

WORLD = '''
from support.symbols import VALUES, drawers, open_drawer, say
from etude import Environment, Limits, ToolContext, load_scenarios, tool

def environment(scenarios="scenarios.jsonl", prompt="question", rubric=None, tools=(open_drawer, say)):
    return Environment(
        name="drawers",
        instructions="",
        tools=tools,
        rubric=rubric or right,
        scenarios={"train": load_scenarios(scenarios, "train")},
        prompt=prompt,
        limits=Limits(max_turns=3, max_tokens_per_turn=4, max_tokens=32),
    )

async def right(rollout, scenario):
    return float(rollout.answer == VALUES[scenario["contents"][scenario["asked"]]])

def odd_tool():
    @tool
    def find(handle: open) -> str:
        """Find."""
        return ""

    return environment(tools=[find, say])

def not_an_environment():
    return None

def raises():
    return 1 / 0
'''
ROW = '{"question": "drawer%d", "asked": %d, "contents": [0, 1]}\n'


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "scenarios.jsonl").write_text(ROW % (0, 0) + ROW % (1, 1))
    save_symbol_model(tmp_path / "model")
    (tmp_path / "run.yaml").write_text(
        "environment: {entry: 'world.py:environment'}\n"
        "model: {name: ./model, chat: symbols}\n"
        "sampling: {groups_per_step: 2, rollouts_per_group: 3}\n"
        "training: {steps: 2}\n"
    )
    return tmp_path


def refused(nursery: Nursery, here: Path, code: int, words: str, *arguments: str) -> str:
    """The message, in one line. words: pieces that it holds, separated by ' | '."""
    life = nursery.command(here, *arguments)
    assert life.wait() == code, life.output
    message = " ".join(life.output.split())
    assert "Traceback" not in message
    assert message.startswith("error: ")
    missing = [word for word in words.split(" | ") if word not in message]
    assert not missing, message
    return message


BROKEN_ROWS = ROW % (0, 0) + "\n" + '{"question": "drawer1", "asked": 1,\n'


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ("model.name=./no-model", 4, "./no-model | Names that work here: "),
        ("model.name=world.py", 4, "world.py"),
        ("model.chat=morse", 2, "'morse' | hermes"),
        ("learning.learning_rate=1", 2, "learning.learning_rate | there are: loss, "),
        ("training.steps=many", 2, "training.steps | valid integer"),
        ("training.steps", 2, "'training.steps' | key.path=value"),
        ("environment.entry=world.py:nothing", 2, "world.py has no function 'nothing'"),
        ("environment.entry=nowhere.py:environment", 2, "nowhere.py"),
        ("environment.entry=world.py:not_an_environment", 2, "returned NoneType"),
        ("environment.entry=world.py:raises", 2, "ZeroDivisionError: division by zero | world.py, line 31"),
        ("environment.entry=world.py:odd_tool", 2, "find | handle"),
        ("environment.args.scenarios=broken.jsonl", 3, "broken.jsonl:3 | not JSON"),
        ("environment.args.scenarios=absent.jsonl", 3, "absent.jsonl | No such file"),
        ("environment.args.prompt=task", 3, "scenarios-1 | 'task' | is missing | question, asked, contents"),
        ("environment.args.promt=x", 2, "world.py:environment | 'promt' | the function takes: scenarios, prompt"),
        ("training.eval_every=1", 2, "no scenarios in split 'validation'; it has: train (2)"),
        ("workspace=run.yaml", 5, "run.yaml"),
        ("workspace=run.yaml/below", 5, "run.yaml/below"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_made(
    here: Path, nursery: Nursery, change: str, code: int, words: str
) -> None:
    (here / "broken.jsonl").write_text(BROKEN_ROWS)
    refused(nursery, here, code, words, "train", "run.yaml", change)
    assert not list((here / ".etude").glob("runs/*")), "a run was made"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("train", 2, "name a configuration file"),
        ("train absent.yaml", 2, "absent.yaml"),
        ("train broken.yaml", 2, "broken.yaml | not valid YAML | line 3"),
        ("train --resume last", 2, "'last' | holds none"),
        ("train --resume last seed=1", 2, "--resume goes on with the saved configuration"),
        ("sft run.yaml", 2, "sft.traces is not set"),
        ("sft run.yaml sft.traces=traces.jsonl", 3, "traces.jsonl:2"),
        ("sft run.yaml sft.traces=run:x", 2, "'x' | holds none"),
        ("eval run.yaml", 2, "no scenarios in split 'validation'"),
        ("eval run.yaml eval.split=train eval.policy=clever", 2, "no policy 'clever'"),
        ("regrade last", 2, "'last' | holds none"),
        ("show x", 2, "'x' | holds none"),
    ],
)
def test_what_cannot_be_done_is_said(here: Path, nursery: Nursery, arguments: str, code: int, words: str) -> None:
    (here / "broken.yaml").write_text("model:\n  name: [\n")
    (here / "traces.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n{"messages": 3}\n')
    refused(nursery, here, code, words, *arguments.split())


def test_a_file_that_is_no_store_is_left_as_it_is(here: Path, nursery: Nursery) -> None:
    (here / ".etude").mkdir()
    (here / ".etude" / "etude.db").write_text("my diary, for thirty years" * 100)
    refused(nursery, here, 5, "etude.db | no Etude store", "train", "run.yaml")
    assert (here / ".etude" / "etude.db").read_text().startswith("my diary")
