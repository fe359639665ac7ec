"""An exception of the user's code, told on one line."""

from __future__ import annotations

import traceback


def blame(error: BaseException, own_file: str | None = None) -> str:
    """Type, message, file and line. own_file: the line there that led to the error is named, rather than the innermost
    one, which is often in a library."""
    message = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, SyntaxError):  # it never ran: its place is its own, not the traceback's
        return f"{message} ({error.filename}, line {error.lineno})"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "frozen importlib" not in each.filename]
    own = [frame for frame in frames if frame.filename == own_file]
    place = (own or frames)[-1]
    return f"{message} ({place.filename}, line {place.lineno})"
