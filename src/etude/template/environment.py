"""An agent that looks things up in a warehouse: replace the tools, the grader and the scenarios with your own.

An environment is what an attempt is made of: instructions, tools, a grader, scenarios and limits. Etude plays it many
times with a model, grades every attempt, and moves the model toward the attempts that went well.
"""

from collections.abc import Sequence

import etude

STOCK = {"bolt": 140, "nut": 512, "washer": 75, "gear": 9, "spring": 33, "lamp": 21, "cable": 60, "valve": 4}
SHELVES = {"bolt": "A1", "nut": "A2", "washer": "A3", "gear": "B1", "spring": "B2", "lamp": "C1", "cable": "C2"}


# ---- Tools: typed functions. The docstring is what the model reads, the types are checked before you are called.
def count_stock(part: str) -> str:
    """Count the pieces of a part.

    Args:
        part: Name of the part, in the singular.
    """
    if part not in STOCK:
        # An answer like any other: the model was wrong and may try again. (An exception that you did not expect is a
        # fault of the tool: it is retried, and never scored as the model's 0.)
        raise etude.ToolError(f"there is no part {part!r}; there are: {', '.join(STOCK)}")
    return str(STOCK[part])


def find_shelf(part: str) -> str:
    """Say on which shelf a part lies.

    Args:
        part: Name of the part, in the singular.
    """
    return SHELVES.get(part, "no shelf")


@etude.tool(final=True)  # calling it ends the attempt, and what it returns is `rollout.answer`
def answer(text: str) -> str:
    """Give the final answer.

    Args:
        text: The answer alone: a number or a shelf.
    """
    return text


# ---- The grader: a number for each attempt, best between 0 and 1. It sees every call, and the scenario's own fields.
def correct(rollout: etude.Rollout, scenario: etude.Scenario) -> float:
    return float(rollout.answer == scenario["answer"])


# Shown beside the reward and kept with every rollout; never trained on. "answer_correct" is what progress lines show.
def metrics(rollout: etude.Rollout, scenario: etude.Scenario) -> dict[str, float]:
    looked = any(call.name == scenario["tool"] and call.kind == "ok" for call in rollout.calls)
    return {"answer_correct": correct(rollout, scenario), "used_the_right_tool": float(looked)}


# ---- Scenarios: one JSON object a line. The prompt is the field "question"; all other fields are the grader's alone.
def environment() -> etude.Environment:
    """What config.yaml names; its arguments would be `environment.args`."""
    return etude.Environment(
        name="warehouse",
        instructions="Answer the question about the warehouse. Look it up with a tool, then answer.",
        tools=[count_stock, find_shelf, answer],
        rubric=correct,
        scenarios={"train": "scenarios_train.jsonl", "validation": "scenarios_validation.jsonl"},
        limits=etude.Limits(max_turns=4, max_tokens_per_turn=96, max_tokens=1536),
        metrics=metrics,
        policies={"expert": Expert()},
    )


# ---- Optional: a script that does it right. Its attempts are what a model can imitate first (`etude sft`), where it is
# too weak to ever succeed by itself; and it shows that the task can be solved at all.
class Expert:
    def next_turn(self, scenario: etude.Scenario, messages: Sequence[etude.Message]) -> etude.Message:
        if messages[-1].role != "tool":
            call = etude.ToolCall(scenario["tool"], {"part": scenario["part"]}, "call_0")
        else:
            call = etude.ToolCall("answer", {"text": messages[-1].content}, "call_1")
        return etude.Message("assistant", "", (call,))
