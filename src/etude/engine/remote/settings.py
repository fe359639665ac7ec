"""What a `ChatClient` is told: where the endpoint is, how hard it may be pressed, and where its key is read."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from etude.errors import ConfigError

MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
DEFAULT_KEY_ENV = "OPENAI_API_KEY"
OPENAI_HOST = "api.openai.com"
PATH = "/chat/completions"


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """url: base URL, as `check_base_url` gives it. model: the endpoint's name of the model. connections: requests in
    flight at once. requests_per_minute: None is no limit. timeout_s: seconds that one try may take, from connecting to
    the last byte. max_retries: further tries of a request. api_key_env: see `read_key`. max_tokens_field: how the
    endpoint calls the limit of sampled tokens. prompt_price, completion_price: USD per million tokens; where one is
    None, nothing has a cost. extra: fields of every request; None takes a field out. cache: the file of the cache; None
    is none."""

    url: str
    model: str
    api_key_env: str | None = None
    connections: int = 16
    requests_per_minute: float | None = None
    timeout_s: float = 120.0
    max_retries: int = 5
    max_tokens_field: MaxTokensField = "max_tokens"
    prompt_price: float | None = None
    completion_price: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    cache: Path | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def is_local(self) -> bool:
        return is_loopback(self.host)


def check_base_url(text: str) -> str:
    """The base URL without a slash at its end.

    Raises ValueError (without the text, which may hold a password) for what is no base URL, and for what would put a
    secret into configurations: a user, a password, a query."""
    try:
        parts = urlsplit(text.strip())
        _ = parts.port
    except ValueError:
        raise ValueError("this is not a URL; write a base URL such as http://127.0.0.1:8000/v1") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write a base URL that begins with http:// or https://, such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(
            "a base URL holds no user, password, query or '#': configurations are saved. Name the environment variable "
            "of the key in model.remote.api_key_env"
        )
    path = parts.path.rstrip("/")
    if path.endswith(PATH):
        raise ValueError(f"give the base URL, without {PATH}")
    return f"{parts.scheme}://{parts.netloc}{path}"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def key_variable(settings: EndpointSettings) -> str | None:
    """The environment variable in which the key is looked for. Where none is named it is OPENAI_API_KEY, but only for
    OpenAI itself and for this machine: a key must not go to a host that nobody meant it for."""
    if settings.api_key_env is not None:
        return settings.api_key_env
    return DEFAULT_KEY_ENV if settings.is_local or settings.host == OPENAI_HOST else None


def read_key(settings: EndpointSettings) -> str | None:
    """The key, or None where the endpoint is asked without one.

    Raises ConfigError, which never shows the key, where a variable was named (or OpenAI is asked) and is not set, and
    for a key that no header can hold."""
    variable = key_variable(settings)
    key = os.environ.get(variable, "").strip() if variable is not None else ""
    if not key:
        if settings.api_key_env is not None or settings.host == OPENAI_HOST:
            raise ConfigError(
                f"{settings.url} needs a key, and the environment variable {variable} is not set: set it, or name "
                "another in model.remote.api_key_env"
            )
        return None
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"the environment variable {variable} holds characters that no key has; set it anew")
    return key
