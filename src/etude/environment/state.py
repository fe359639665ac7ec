"""What is kept of a rollout's state: the public keys, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

_JSON_OBJECT = TypeAdapter(dict[str, JsonValue], config=ConfigDict(strict=True, allow_inf_nan=False))


class StateError(ValueError):
    """A value in a rollout's state is not JSON; the message names its key."""


def state_snapshot(state: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `state` without its private keys (those that start with "_").

    Raises StateError, naming the key, where a value is not JSON: an object, a set, a tuple, a key that is not text, NaN
    or an infinity. Nothing is converted, so that a grader sees what the tools left."""
    public = {key: value for key, value in dict(state).items() if not (isinstance(key, str) and key.startswith("_"))}
    try:
        return dict(_JSON_OBJECT.validate_python(public))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise StateError(
            f"state[{first['loc'][0]!r}] is not JSON: {first['msg']} (at {place}). Keep JSON values there, or start "
            'the key with "_" for what only the tools need'
        ) from None
