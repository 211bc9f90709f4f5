"""The SDKs and frameworks, each reduced to calls that take a text and return all that came back.

``CLIENTS``: name -> from a provider's address, its calls by name. Each has ``plain`` and
``streamed``. What the packages say of themselves (dates, durations, random ids) is left out.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import rebuno_sync as rebuno
from rebuno_sync import llm

__all__ = ["CLIENTS", "Calls"]

Calls = dict[str, Callable[[str], str]]

os.environ |= {
    "AWS_EC2_METADATA_DISABLED": "true",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
}


def _said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def _models(parts: Iterable[Any]) -> str:
    return "\n".join(part.model_dump_json() for part in parts)


def openai_chat(url: str) -> Calls:
    from openai import OpenAI

    client = OpenAI(api_key="k", base_url=f"{url}/v1", http_client=rebuno.httpx_client())
    completions = client.chat.completions

    def asked(text: str) -> Any:
        return {"model": "gpt-test", "messages": _said(text)}

    def closed_early(text: str) -> str:
        with completions.create(**asked(text), stream=True) as chunks:
            return _models(itertools.islice(chunks, 2))

    def streaming_response(text: str) -> str:
        with completions.with_streaming_response.create(**asked(text)) as response:
            return "".join(response.iter_text())

    return {
        "plain": lambda text: completions.create(**asked(text)).model_dump_json(),
        "streamed": lambda text: _models(completions.create(**asked(text), stream=True)),
        "closed_early": closed_early,
        "raw_response": lambda text: completions.with_raw_response.create(**asked(text)).text,
        "streaming_response": streaming_response,
        "embedding": lambda text: client.embeddings.create(
            model="gpt-test", input=text
        ).model_dump_json(),
    }


def openai_responses(url: str) -> Calls:
    from openai import OpenAI

    client = OpenAI(api_key="k", base_url=f"{url}/v1", http_client=rebuno.httpx_client())
    create: Any = client.responses.create

    return {
        "plain": lambda text: create(model="gpt-test", input=text).model_dump_json(),
        "streamed": lambda text: _models(create(model="gpt-test", input=text, stream=True)),
    }


def anthropic(url: str) -> Calls:
    from anthropic import Anthropic

    client = Anthropic(api_key="k", base_url=url, http_client=rebuno.httpx_client())

    def asked(text: str) -> Any:
        return {"model": "claude-test", "max_tokens": 100, "messages": _said(text)}

    def streamed(text: str) -> str:
        with client.messages.stream(**asked(text)) as events:
            return _models(events)

    def closed_early(text: str) -> str:
        with client.messages.create(**asked(text), stream=True) as events:
            return _models(itertools.islice(events, 3))

    def streaming_response(text: str) -> str:
        with client.messages.with_streaming_response.create(**asked(text)) as response:
            return "".join(response.iter_text())

    return {
        "plain": lambda text: client.messages.create(**asked(text)).model_dump_json(),
        "streamed": streamed,
        "closed_early": closed_early,
        "raw_response": lambda text: client.messages.with_raw_response.create(**asked(text)).text(),
        "streaming_response": streaming_response,
    }


def gemini(url: str) -> Calls:
    from google import genai

    http: Any = rebuno.httpx_client(library="httpx")
    retries = genai.types.HttpRetryOptions(initial_delay=0.01, jitter=0.01)
    options = genai.types.HttpOptions(base_url=url, httpx_client=http, retry_options=retries)
    client = genai.Client(api_key="k", http_options=options)

    def kept(answers: Iterable[Any]) -> str:
        unkept = {"sdk_http_response"}
        return "\n".join(answer.model_dump_json(exclude=unkept) for answer in answers)

    def plain(text: str) -> str:
        return kept([client.models.generate_content(model="gemini-test", contents=text)])

    def streamed(text: str) -> str:
        return kept(client.models.generate_content_stream(model="gemini-test", contents=text))

    return {"plain": plain, "streamed": streamed}


def bedrock(url: str) -> Calls:
    import boto3

    session = boto3.Session("k", "s", region_name="eu-west-1")
    client: Any = llm.record_boto(session.client("bedrock-runtime", endpoint_url=url))

    def asked(text: str) -> Any:
        return {
            "modelId": "amazon-test",
            "messages": [{"role": "user", "content": [{"text": text}]}],
        }

    def kept(answer: dict[str, Any]) -> str:
        return json.dumps({key: answer[key] for key in answer if key != "ResponseMetadata"})

    def invoked(text: str) -> str:
        answer = client.invoke_model(modelId="claude-test", body=json.dumps({"prompt": text}))
        said: bytes = answer["body"].read()
        return said.decode()

    return {
        "plain": lambda text: kept(client.converse(**asked(text))),
        "streamed": lambda text: json.dumps(list(client.converse_stream(**asked(text))["stream"])),
        "invoked": invoked,
    }


def langchain(url: str) -> Calls:
    from langchain_openai import ChatOpenAI

    http: Any = rebuno.httpx_client()
    model = ChatOpenAI(
        model="gpt-test", api_key="k", base_url=f"{url}/v1", http_client=http, stream_usage=True
    )

    def kept(message: Any) -> str:
        return json.dumps([message.content, message.response_metadata, message.usage_metadata])

    return {
        "plain": lambda text: kept(model.invoke(text)),
        "streamed": lambda text: "\n".join(map(kept, model.stream(text))),
    }


def litellm(url: str) -> Calls:
    import litellm

    def complete(text: str, **options: Any) -> Any:
        return litellm.completion(
            model="openai/gpt-test",
            messages=_said(text),
            api_base=f"{url}/v1",
            api_key="k",
            num_retries=2,
            **options,
        )

    def kept(answer: Any) -> str:
        return json.dumps(answer.model_dump(mode="json", exclude={"created", "id"}))

    return {
        "plain": lambda text: kept(complete(text)),
        "streamed": lambda text: "\n".join(map(kept, complete(text, stream=True))),
    }


def plain_requests(url: str) -> Calls:
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    session = rebuno.http_client()
    # Not after a lost connection: below the recorder, that would outlive a cancel.
    retries = Retry(2, read=0, status_forcelist=[500], allowed_methods=None, backoff_factor=0.0)
    session.mount(url, llm.RecordingAdapter(HTTPAdapter(max_retries=retries)))

    def post(text: str, **options: Any) -> Any:
        body = {"model": "gpt-test", "messages": _said(text), "stream": bool(options)}
        return session.post(f"{url}/v1/chat/completions", json=body, **options)

    def streamed(text: str) -> str:
        with post(text, stream=True) as answer:
            return "\n".join(answer.iter_lines(decode_unicode=True))

    return {"plain": lambda text: post(text).text, "streamed": streamed}


CLIENTS: dict[str, Callable[[str], Calls]] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "google-genai": gemini,
    "bedrock": bedrock,
    "langchain": langchain,
    "litellm": litellm,
    "requests": plain_requests,
}
EVERYWHERE = frozenset({"litellm"})
"""Those that build their own clients, for ``record_all``."""
