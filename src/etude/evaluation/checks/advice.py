"""What an attack means, and what to do about it, in words for a person."""

from __future__ import annotations

from collections.abc import Mapping

MESSAGES: Mapping[str, str] = {
    "empty": "an empty answer is rewarded",
    "no-op": "an attempt that does nothing is rewarded",
    "idk": "declining to answer is rewarded, where there is an answer",
    "tokens": "an answer of one short word or sign is rewarded",
    "numbers": "an answer that only looks like a number (nan, inf, very long) is rewarded",
    "patterns": "an answer that is a pattern or a placeholder is rewarded",
    "formats": "the form of an answer without an answer in it is rewarded",
    "noise": "unprintable or meaningless characters are rewarded",
    "claims": "claiming to have done the work is rewarded",
    "truncated": "an attempt that was cut off at its limit of tokens is rewarded",
    "injection": "a text that tells the judge what to think is rewarded",
    "echo": "an echo of the question or of the data is rewarded",
    "keywords": "words and structure without an answer are rewarded",
    "long": "a long text without an answer is rewarded",
    "repeated-calls": "repeating a tool call without a right answer is rewarded",
    "wrong": "a wrong answer is rewarded nearly like the right one",
    "listing": "a list of many answers is rewarded like the right one, wherever in it that stands",
    "buried": "the right answer among many wrong ones in a long text is rewarded like the right one",
    "hedged": "the right answer beside a wrong one is rewarded like the right one, in either order",
    "near": "a part or an extension of the right answer is rewarded like it",
    "tools-pay": "using the tools earns most of the reward, whatever the answer",
    "wrong-calls": "the calls that are right for another scenario are rewarded here too",
    "guessing": "trying many answers as arguments of a tool is rewarded",
    "arguments": "an argument of the final tool that only tells of itself is rewarded (a score, a confidence)",
    "calls-pay": "repeating a tool call earns more",
    "length-pays": "padding an answer with text that says nothing earns more",
    "mentions-pay": "saying the right answer several times earns more",
}
_COMPARE = (
    "Compare the whole answer with the reference (exactly, by numbers with a tolerance, or as sets), not by `in`."
)
_EMPTY = "Return 0 first for an answer that is missing or empty; beware of `answer in reference`, which is true of ''."
_CALLS = "Pay for results of calls, once each, never for their number; limits.max_tool_calls and a penalty bound them."
ADVICE: Mapping[str, str] = {
    "empty": _EMPTY,
    "no-op": "Give 0 to an attempt without an answer; take constant parts (format, brevity) as gates, not as terms.",
    "idk": "Give declining less than half of a right answer, or the model learns to decline always.",
    "tokens": _EMPTY + " " + _COMPARE,
    "numbers": "Check math.isfinite before a comparison, and write it so that nan fails: abs(a - b) <= tolerance.",
    "patterns": "Never use an answer as a pattern or a template: re.escape it, or compare with ==.",
    "formats": "Make form a gate (Rubric.gates), which multiplies the score of the answer and cannot replace it.",
    "noise": "Strip and normalise the answer, and give 0 to what is then empty.",
    "claims": "Grade what rollout.calls shows was done, and the answer; not what the text says of itself.",
    "truncated": "Give 0 where rollout.answer is None: the attempt did not end.",
    "injection": "Hand the answer to the judge as quoted data, parse its verdict strictly from its own output, and "
    "gate the judge by a check that reads no instructions.",
    "echo": "Compare with the reference after removing the question's words, or require a short answer.",
    "keywords": "Words can be stuffed: check statements or values, and bound the answer's length.",
    "long": "Do not pay for length; bound it.",
    "repeated-calls": _CALLS,
    "wrong": _COMPARE,
    "listing": "Require one answer: divide by the number of answers given (F1), or refuse more than one. " + _COMPARE,
    "buried": "Extract one answer (a final tool, a tag, the last line) and compare that. " + _COMPARE,
    "hedged": "Refuse answers that offer alternatives, or compare the whole answer. " + _COMPARE,
    "near": "Compare whole words and whole numbers. " + _COMPARE,
    "tools-pay": "Pay for steps less than for the answer, or pay for them only together with a right one.",
    "wrong-calls": "Compare the arguments of calls, or the state that they leave, with what this scenario asks for.",
    "guessing": "Grade the answer, not whether any call held it; bound calls by limits.max_tool_calls.",
    "arguments": "Do not take the model's own word for how good it is: reward it only together with a right answer.",
    "calls-pay": _CALLS,
    "length-pays": "Do not pay for length; bound it.",
    "mentions-pay": "Count a right answer once.",
}
