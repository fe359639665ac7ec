"""Google-style docstrings: what a tool's author already wrote about it, for the model."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

_SECTION = re.compile(
    r"(Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters|Attributes|Returns?|Yields?"
    r"|Raises|Warns|Warnings?|Examples?|Notes?|References|See Also|Todo):\s*$"
)
_PARAMETER_SECTIONS = frozenset({"Args", "Arguments", "Params", "Parameters", "Keyword Args", "Keyword Arguments"})
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Docstring:
    """description: everything before the first section, as written. parameters: each one's text, on one line."""

    description: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> Docstring:
    """Split a docstring into its description and its Args. Other sections are for people and are left out."""
    section = ""
    description: list[str] = []
    parameters: list[str] = []
    for line in inspect.cleandoc(text or "").splitlines():
        if header := _SECTION.match(line):
            section = header[1]
        elif not section:
            description.append(line.rstrip())
        elif section in _PARAMETER_SECTIONS:
            parameters.append(line)
    return Docstring("\n".join(description).strip(), _parse_parameters(parameters))


def _parse_parameters(lines: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if entry := _PARAMETER.match(line):
            name = entry[1]
            parameters[name] = entry[2].strip()
        elif name:  # a line that goes on, indented or not
            parameters[name] = f"{parameters[name]} {line.strip()}".strip()
    return parameters
