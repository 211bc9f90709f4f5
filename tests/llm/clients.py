"""The clients that the tests call models with, by name."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import boto3
import openai
from support.provider_server import Provider

import rebuno_sync as rebuno
from rebuno_sync import llm

__all__ = ["HTTP_CLIENTS", "MESSAGES", "POSTS", "STREAMS", "amazon", "bedrock", "claude", "gpt"]

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]

HTTP_CLIENTS = ("httpx2", "httpx")


def gpt(provider: Provider, library: str = "httpx2", **options: Any) -> openai.OpenAI:
    """OpenAI's SDK on a recording client."""
    client: Any = provider.closing.enter_context(rebuno.httpx_client(library=library))
    return openai.OpenAI(api_key="k", base_url=f"{provider.url}/v1", http_client=client, **options)


def claude(provider: Provider, library: str = "httpx2", **options: Any) -> anthropic.Anthropic:
    """Anthropic's SDK on a recording client."""
    client: Any = provider.closing.enter_context(rebuno.httpx_client(library=library))
    return anthropic.Anthropic(api_key="k", base_url=provider.url, http_client=client, **options)


def _requests_post(url: str) -> str:
    with rebuno.http_client() as session:
        return session.post(url, json={"model": "m"}).text


def _httpx_post(library: str) -> Callable[[str], str]:
    def post(url: str) -> str:
        with rebuno.httpx_client(library=library) as client:
            return client.post(url, json={"model": "m"}).text

    return post


def _bedrock_post(url: str) -> str:
    client = bedrock(url)
    try:
        answer = client.invoke_model(modelId="m", body=json.dumps({"prompt": "hello"}))
        content: bytes = answer["body"].read()
        return content.decode()
    finally:
        client.close()


def bedrock(url: str) -> Any:
    """Amazon's SDK, recording."""
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    return llm.record_boto(amazon().client("bedrock-runtime", endpoint_url=url))


@functools.cache
def amazon() -> boto3.Session:
    """It reads its models of services once."""
    return boto3.Session("k", "s", region_name="eu-west-1")


POSTS: dict[str, Callable[[str], str]] = {
    "requests": _requests_post,
    "httpx2": _httpx_post("httpx2"),
    "httpx": _httpx_post("httpx"),
    "botocore": _bedrock_post,
}
"""A model call of each library: an address -> the text of the answer."""


def _requests_stream(url: str) -> Iterator[bytes]:
    with (
        rebuno.http_client() as session,
        session.post(url, json={"model": "m", "stream": True}, stream=True) as answer,
    ):
        yield from answer.iter_content(None)


def _httpx_stream(library: str) -> Callable[[str], Iterator[bytes]]:
    def stream(url: str) -> Iterator[bytes]:
        body = {"model": "m", "stream": True}
        with (
            rebuno.httpx_client(library=library) as client,
            client.stream("POST", url, json=body) as answer,
        ):
            yield from answer.iter_bytes()

    return stream


STREAMS: dict[str, Callable[[str], Iterator[bytes]]] = {
    "requests": _requests_stream,
    "httpx2": _httpx_stream("httpx2"),
    "httpx": _httpx_stream("httpx"),
}
"""A streamed model call of each library that can: an address -> the chunks."""
