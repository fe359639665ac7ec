"""Whether a model's chat template only appends, and shows tools: found out from its tokenizer, without weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etude.environment.environment import Environment
from etude.evaluation.checks.report import Finding
from etude.rollout.chat import chat_format
from etude.rollout.template_chat import TemplateChat

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_template(tokenizer: PreTrainedTokenizerBase, chat: str, environment: Environment) -> list[Finding]:
    """chat: as `model.chat` of a configuration. Etude's own formats append by construction. Raises ModelError where the
    tokenizer fits no format."""
    written = chat_format(tokenizer, chat)
    if not isinstance(written, TemplateChat):
        return []
    report = written.check(environment.tool_specs)
    severe = not report.append_only or (not report.tool_support and bool(environment.tools))
    return [
        Finding(
            "fail" if severe else "warn",
            "template",
            problem,
            "Use model.chat=hermes where the model knows ChatML, or another model; a rewritten history costs a new row "
            "for each turn, and what the template hides the model cannot use.",
        )
        for problem in report.problems
    ]


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model (see `etude.model.source`). Raises ModelError where it cannot be found or read."""
    from etude.errors import ModelError
    from etude.model.source import resolve_model

    source = resolve_model(name)
    while source.base is not None:
        source = source.base
    if source.kind == "tiny":
        from etude.model.tiny import tiny_tokenizer

        return tiny_tokenizer(call_tokens=True)
    from transformers import AutoTokenizer

    try:
        if source.kind == "gguf" and source.path is not None:
            return AutoTokenizer.from_pretrained(source.path.parent, gguf_file=source.path.name)
        return AutoTokenizer.from_pretrained(source.path or source.name)
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"the tokenizer of {name!r} cannot be loaded: {error}") from error
