"""Which model the demo asks: its own, or the one that ``OPENAI_API_KEY`` opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from .provider import MODEL, Provider

__all__ = ["Model", "choose"]

_DEFAULT_MODEL = "gpt-4o-mini"
_DEFAULT_URL = "https://api.openai.com/v1"


@dataclass(frozen=True)
class Model:
    """``environment``: the one in which the agent finds its provider."""

    name: str
    environment: Mapping[str, str]

    @property
    def where(self) -> str:
        """The provider's host, without a password that its URL may have."""
        url = self.environment["OPENAI_BASE_URL"]
        return urlsplit(url).netloc.rpartition("@")[2] or url


def choose(environment: Mapping[str, str], own: Provider | None) -> Model:
    """The demo's own provider where it is given, else the one of the environment."""
    if own is None:
        url = environment.get("OPENAI_BASE_URL") or _DEFAULT_URL
        name = environment.get("OPENAI_MODEL") or _DEFAULT_MODEL
        return Model(name, {**environment, "OPENAI_BASE_URL": url})
    loopback = {
        "OPENAI_BASE_URL": own.url,
        "OPENAI_API_KEY": "of-the-demo",
        # A proxy would not find it.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    return Model(MODEL, {**environment, **loopback})
