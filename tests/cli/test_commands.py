"""The commands, one after the other, as a person would type them: measure, imitate, train, look, grade again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from etude.cli import app

ENVIRONMENT = '''
import etude

@etude.tool
def look_up(word: str) -> str:
    """Look up a word.

    Args:
        word: The word.
    """
    return word.upper()

@etude.tool(final=True)
def answer(text: str) -> str:
    """Answer."""
    return text

def letters(rollout, scenario):
    text = " ".join(message.content for message in rollout.messages if message.role == "assistant")
    return BONUS + sum(character in "aeiou" for character in text) / 10

class Perfect:
    def next_turn(self, scenario, messages):
        from etude.environment.calls import ToolCall
        from etude.rollout.messages import Message
        if messages[-1].role == "user":
            return Message("assistant", "", (ToolCall("look_up", {"word": scenario["answer"]}, "c1"),))
        return Message("assistant", "", (ToolCall("answer", {"text": messages[-1].content}, "c2"),))

def environment(bonus: float = 0.0):
    global BONUS
    BONUS = bonus
    rows = [{"question": f"Say {word}.", "answer": word} for word in ("one", "two", "three", "four")]
    return etude.Environment(
        name="words",
        instructions="Use the tools.",
        tools=[look_up, answer],
        rubric=etude.Rubric(scores={"letters": letters}),
        scenarios={"train": rows, "validation": rows[:2]},
        limits=etude.Limits(max_turns=2, max_tokens_per_turn=12, max_tokens=1500),
        metrics=lambda rollout, scenario: {"answer_correct": float(rollout.answer == scenario["answer"].upper())},
        policies={"perfect": Perfect()},
    )
'''


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.py").write_text(ENVIRONMENT)
    (folder / "run.yaml").write_text(
        f"environment: {{entry: '{folder}/words.py:environment'}}\n"
        "model: {name: tiny-random}\n"
        f"workspace: {folder}/work\n"
        "sampling: {groups_per_step: 2, rollouts_per_group: 3, max_concurrent: 8}\n"
        "learning: {lr: 1.0e-3}\n"
        "training: {steps: 2, eval_every: 1}\n"
    )
    return folder


def run(here: Path, *words: str) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_a_whole_day(here: Path) -> None:
    config, workspace = str(here / "run.yaml"), ["--workspace", str(here / "work")]

    plan = run(here, "train", config, "--dry-run", "training.steps=50")
    assert "steps: 50" in plan
    assert "GiB" in plan
    assert "0.1M parameters" in plan

    scripted = run(here, "eval", config, "eval.policy=perfect", "eval.split=train")
    assert "metric/answer_correct" in scripted
    assert "pass@1" in scripted

    warm = run(here, "sft", config, "sft.traces=run:last", "sft.rows_per_step=4", "training.eval_every=0")
    assert "loss" in warm

    trained = run(here, "train", config, "model.name=run:last")
    assert "step 2/2" in trained
    assert "validation at step 2" in trained

    assert "reward/mean" in run(here, "eval", config, "model.name=run:last", "eval.attempts=2", "eval.temperature=1")

    runs = run(here, "runs", *workspace)
    assert runs.count("succeeded") == 4
    shown = run(here, "show", "train-", *workspace)
    assert "reward/mean" in shown
    listed = run(here, "show", "train-", "--rollouts", "--step", "1", *workspace)
    trace = next(word for word in listed.split() if word.startswith("trace_"))
    assert "Say " in run(here, "show", "train-", "--rollout", trace, *workspace)
    assert "run:train-" in run(here, "models", *workspace)

    (here / "words.py").write_text(ENVIRONMENT.replace("BONUS + sum", "1 + sum"))
    again = run(here, "regrade", "train-", *workspace)
    assert "0 grader faults" in again
    old, new = (float(part) for part in again.split("mean reward ")[1].split(" over ")[0].split(" -> "))
    assert new == pytest.approx(old + 1, abs=1e-3)


def test_a_warm_start_makes_traces_likelier(here: Path) -> None:
    config = str(here / "run.yaml")
    run(here, "eval", config, "eval.policy=perfect", "eval.split=train")
    output = run(here, "sft", config, "sft.traces=run:last", "sft.epochs=15", "training.steps=15", "learning.lr=1e-2")
    losses = [float(line.split("loss ")[1].split()[0]) for line in output.splitlines() if "loss " in line]
    assert len(losses) == 15
    assert losses[-1] < losses[0] / 2


def test_traces_from_a_file(here: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "answer", "arguments": json.dumps({"text": "ONE"})}}
    messages = [
        {"role": "system", "content": "Use the tools."},
        {"role": "user", "content": "Say one."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    file = here / "traces.jsonl"
    file.write_text(json.dumps({"messages": messages, "tools": []}) + "\n")
    assert "step 1/1" in run(here, "sft", str(here / "run.yaml"), f"sft.traces={file}", "training.steps=1")
    file.write_text(file.read_text() + "{broken\n")
    result = CliRunner().invoke(app, ["sft", str(here / "run.yaml"), f"sft.traces={file}"])
    assert f"{file}:2: not a trace" in str(result.exception)


def test_fields_are_listed() -> None:
    assert "learning.lr" in run(Path(), "train", "--fields")
