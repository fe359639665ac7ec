"""An exception of the user's code, told on one line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any


def blame(error: BaseException, own_file: str | None = None) -> str:
    """Type, message, file and line. own_file: the line there that led to the error is named, rather than the innermost
    one, which is often in a library."""
    message = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):  # it never ran: its place is its own, not the traceback's
        return f"{message} ({error.filename}, line {error.lineno})"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "frozen importlib" not in each.filename]
    own = [frame for frame in frames if frame.filename == own_file]
    if not frames:  # it was made, and never raised
        return message
    place = (own or frames)[-1]
    return f"{message} ({place.filename}, line {place.lineno})"


def file_of(function: Callable[..., Any]) -> str | None:
    """The file in which a function, or the class of a callable object, was written; None for built-in ones."""
    for each in (inspect.unwrap(function), type(function).__call__):
        if (code := getattr(each, "__code__", None)) is not None:
            return str(code.co_filename)
    return None
