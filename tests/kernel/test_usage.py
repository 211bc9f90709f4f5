"""How many tokens a call used, in the shapes in which providers tell it (protocol.md 8.3)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from rebuno_sync.kernel.usage import usage_of
from rebuno_sync.types import Usage


def envelope(body: str, **more: Any) -> str:
    """What is recorded of a response."""
    return json.dumps({"status": 200, "headers": {}, "body": body, **more})


def sse(*events: Any) -> str:
    return "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)


SHAPES = {
    "OpenAI chat": {"usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}},
    "OpenAI responses": {"usage": {"input_tokens": 11, "output_tokens": 7}},
    "Anthropic": {"usage": {"input_tokens": 11, "output_tokens": 7}},
    "Bedrock": {"usage": {"inputTokens": 11, "outputTokens": 7}},
    "Gemini": {"usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 7}},
    "Ollama": {"prompt_eval_count": 11, "eval_count": 7},
    "a list of parts": [{"usage": {"input_tokens": 11}}, {"usage": {"output_tokens": 7.9}}],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_usage_of_a_response_is_found(shape: str) -> None:
    """In the body of an envelope, in a stream's events, or in a record that is no envelope."""
    found = Usage(input_tokens=11, output_tokens=7)
    text = json.dumps(SHAPES[shape])
    assert usage_of(envelope(text)) == found
    assert usage_of(envelope(sse({"first": 1}, SHAPES[shape]) + "data: [DONE]\n\n")) == found
    assert usage_of(envelope(text + "\n" + '{"done": true}')) == found
    assert usage_of(text) == found


def test_the_largest_counts_of_a_stream_are_its_usage() -> None:
    """Anthropic counts up."""
    events = [
        {"message": {"usage": {"input_tokens": 11, "output_tokens": 1}}},
        {"usage": {"output_tokens": 7}},
        {"usage": {"output_tokens": 5}},
    ]
    assert usage_of(envelope(sse(*events))) == Usage(input_tokens=11, output_tokens=7)


def test_the_usage_of_a_binary_stream_is_found() -> None:
    """Amazon's frames hold JSON."""
    frames = b"\x00\x01\xff" + json.dumps(SHAPES["Bedrock"]).encode() + b"\x9e\x00"
    body = base64.b64encode(frames).decode()
    found = usage_of(envelope(body, encoding="base64"))
    assert found == Usage(input_tokens=11, output_tokens=7)


@pytest.mark.parametrize(
    "result",
    [
        None,
        "null",
        "7",
        '"input_tokens"',
        envelope(""),
        envelope("input_tokens"),
        envelope('{"usage": {"input_tokens": 0, "output_tokens": 0}}'),
        envelope('{"usage": {"input_tokens": true, "output_tokens": "7"}}'),
        envelope("data: {input_tokens"),
        envelope("not base64 at all", encoding="base64"),
    ],
)
def test_what_tells_no_usage_has_none(result: str | None) -> None:
    """It is no error."""
    assert usage_of(result) is None
