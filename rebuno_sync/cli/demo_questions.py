"""How the demo's agent asks a model: by OpenAI's package where it is installed, else by hand.

Either way over a client that records.

Below what records, each request that really leaves is written down, as the bodies of tools are.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import requests
from requests.adapters import HTTPAdapter

import rebuno_sync as rebuno

from ..llm import RecordingAdapter
from .demo_bodies import begin

__all__ = ["NO_ANSWER", "answer_from", "ask"]

NO_ANSWER = "the model gave no answer"
_TIMEOUT_SECONDS = 60.0


def ask(model: str, messages: list[tuple[str, str]]) -> str:
    """The answer of the provider that ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` name.

    ``messages``: roles and texts. Raises ``RuntimeError`` when there is none.
    """
    said = [{"role": role, "content": text} for role, text in messages]
    ask_it = _by_hand if importlib.util.find_spec("openai") is None else _by_the_sdk
    return ask_it(model, said).strip()


def _by_the_sdk(model: str, messages: Any) -> str:
    openai = importlib.import_module("openai")
    try:
        completion = _sdk().chat.completions.create(model=model, messages=messages)
        content = completion.choices[0].message.content
    except openai.APIStatusError as error:
        raise _no_answer(f"HTTP {error.status_code}: {error.response.text}") from None
    except openai.APIConnectionError as error:
        raise _no_answer(f"{error} {error.__cause__}") from None
    except (IndexError, TypeError, AttributeError):
        content = None
    if not isinstance(content, str):
        raise _no_answer("what came is no chat completion")
    return content


@cache
def _sdk() -> Any:
    """One try for each question: the demo counts them."""
    openai = importlib.import_module("openai")
    bases = {base.__module__.partition(".")[0] for base in openai.DefaultHttpxClient.__mro__}
    library = "httpx2" if "httpx2" in bases else "httpx"
    url = os.environ["OPENAI_BASE_URL"]
    client = rebuno.httpx_client(library=library, transport=_counting_transport(library, url))
    return openai.OpenAI(
        base_url=url,
        api_key=os.environ["OPENAI_API_KEY"],
        http_client=client,
        max_retries=0,
        timeout=_TIMEOUT_SECONDS,
    )


def _counting_transport(library: str, url: str) -> Any:
    httpx: Any = importlib.import_module(library)
    there = urlsplit(url)
    # A transport of one's own keeps the client from looking for a proxy.
    proxy = None if proxy_bypass(there.hostname or "") else getproxies().get(there.scheme)

    class Counting(httpx.HTTPTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            _begin(request.read())
            return super().handle_request(request)

    return Counting(proxy=proxy)


def _by_hand(model: str, messages: Any) -> str:
    try:
        response = _session().post(
            os.environ["OPENAI_BASE_URL"].rstrip("/") + "/chat/completions",
            json={"model": model, "messages": messages},
            auth=_bearer,
            timeout=_TIMEOUT_SECONDS,
        )
    except requests.RequestException as error:
        raise _no_answer(str(error)) from None
    if not response.ok:
        raise _no_answer(f"HTTP {response.status_code}: {response.text}")
    return answer_from(response)


@cache
def _session() -> requests.Session:
    session = rebuno.http_client()
    for scheme in ("https://", "http://"):
        session.mount(scheme, RecordingAdapter(_CountingAdapter()))
    return session


class _CountingAdapter(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *args: Any, **kw: Any) -> requests.Response:
        _begin(request.body)
        return super().send(request, *args, **kw)


def _begin(body: Any) -> None:
    asked = json.loads(body)
    begin(asked["model"], asked)


def answer_from(response: requests.Response) -> str:
    """The text of a chat completion; ``RuntimeError`` when the response is none."""
    try:
        content = response.json()["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError):
        content = None
    if not isinstance(content, str):
        raise _no_answer(f"{response.url} answered with no chat completion: {response.text}")
    return content


def _bearer(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """As ``auth=``, since a header would lose against a line for the host in ``~/.netrc``."""
    request.headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    return request


def _no_answer(why: str) -> RuntimeError:
    return RuntimeError(f"{NO_ANSWER}: {why[:300]}")
