"""What an HTTP status means for a request, and for all that would follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from etude.engine.remote.reply import error_of
from etude.engine.remote.settings import PATH, EndpointSettings, key_variable
from etude.errors import ConfigError, EtudeError, ModelError

TRY_AGAIN = frozenset({408, 409, 425, 429})  # and every 5xx
BUSY = frozenset({429, 503, 529})  # what all requests should be held back for
NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_TOO_LONG = ("context_length_exceeded", "maximum context length", "context length", "context window", "too many tokens")


class Failed(Exception):
    """One try failed. kind: for counting. retry: whether another try may go better. busy: whether the endpoint has too
    much to do. counts: whether it says that the endpoint is down, rather than that this request was wrong."""

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        retry: bool = True,
        busy: bool = False,
        counts: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.retry, self.busy, self.counts = kind, retry, busy, counts
        self.headers: Mapping[str, str] = headers or {}


def check_status(
    settings: EndpointSettings,
    status: int,
    headers: Mapping[str, str],
    data: bytes,
    *,
    worked: bool,
    redact: Callable[[str], str],
) -> None:
    """Returns for a success. worked: whether the endpoint has answered before; then a request that it refuses is that
    request's own trouble (too long, filtered) and no fault of the settings.

    Raises Failed where the fault is the try's or the request's, ConfigError or ModelError where no request can succeed.
    Of 401 and 403 the endpoint's text is not shown: it likes to quote the key."""
    if status == 200:
        return
    code, text = error_of(data)
    text = redact(text)
    said = f"status {status}: {text}"
    if code in NO_CREDIT or status == 402:
        raise ModelError(
            f"{settings.url} says that the account has no credit (status {status}): add some, or use another key"
        )
    if status in TRY_AGAIN or status >= 500:
        busy = status in BUSY
        raise Failed("rate_limit" if status == 429 else "server_error", said, busy=busy, headers=headers)
    if status in (400, 413, 422) and any(sign in f"{code} {text}".lower() for sign in _TOO_LONG):
        raise Failed("too_long", said, retry=False, counts=False)
    if worked and status not in (401, 404):
        raise Failed("refused", said if status != 403 else "status 403", retry=False)
    raise _hopeless(settings, status, headers, text)


def _hopeless(settings: EndpointSettings, status: int, headers: Mapping[str, str], text: str) -> EtudeError:
    url, model = settings.url + PATH, settings.model
    if status in (401, 403):
        variable = key_variable(settings)
        key = (
            f"the key in the environment variable {variable} is wrong, unset, or may not use {model!r}"
            if variable is not None
            else "no key was sent: name the environment variable that holds it in model.remote.api_key_env"
        )
        return ConfigError(f"{url} refused the request (status {status}): {key}")
    if 300 <= status < 400:
        place = urlsplit(headers.get("location", ""))
        where = f"{place.scheme}://{place.hostname}{place.path}".removesuffix(PATH) if place.hostname else "elsewhere"
        return ConfigError(
            f"{url} points to {where} (status {status}), and no redirect is followed: if you trust it, set "
            "model.endpoint to it"
        )
    if status in (404, 405):
        return ModelError(
            f"{url} is not there, or has no model {model!r} (status {status}: {text}): check model.endpoint, which "
            "often ends in /v1, and model.name"
        )
    return ConfigError(
        f"{url} does not take the request (status {status}: {text}): check model.name, and take out or add fields of "
        "the request with model.remote.extra_body and model.remote.max_tokens_field"
    )
