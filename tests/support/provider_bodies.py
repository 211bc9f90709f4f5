"""What model providers say, byte for byte: OpenAI, Anthropic, Google's Gemini, Amazon's Bedrock."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "AMAZON_STREAM",
    "anthropic_message",
    "anthropic_stream",
    "chat_completion",
    "chat_stream",
    "chat_tool_calls",
    "converse_answer",
    "converse_stream",
    "embeddings",
    "gemini_answer",
    "gemini_stream",
    "response_object",
    "response_stream",
]

AMAZON_STREAM = "application/vnd.amazon.eventstream"


def chat_completion(content: str = "Hello.") -> dict[str, Any]:
    """OpenAI's chat completion."""
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-test",
        "choices": [choice],
        "usage": usage,
    }


def chat_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """OpenAI's chat completion, streamed; usage in the last chunk."""

    def data(choices: list[Any], **more: Any) -> bytes:
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000}
        return _data(chunk | {"model": "gpt-test", "choices": choices} | more)

    parts = [
        data([{"index": 0, "delta": {"content": word}, "finish_reason": None}]) for word in words
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    parts.append(data([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    parts.append(data([], usage=usage))
    return [*parts, b"data: [DONE]\n\n"]


def response_object(content: str = "Hello.") -> dict[str, Any]:
    """OpenAI's answer of the Responses API."""
    text = {"type": "output_text", "text": content, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "model": "gpt-test",
        "output": [message | {"content": [text]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        },
    }


def anthropic_message(content: str = "Hello.") -> dict[str, Any]:
    """Anthropic's message."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [{"type": "text", "text": content}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }


def anthropic_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """Anthropic's message, streamed."""
    start = anthropic_message() | {"content": [], "stop_reason": None}
    start["usage"] = {"input_tokens": 11, "output_tokens": 1}
    block = {"type": "text", "text": ""}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": word},
        }
        for word in words
    ]
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\n".encode() + _data(event) for event in events]


def chat_tool_calls(name: str, arguments: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """OpenAI's chat completion that asks for a tool, once with each of the arguments."""
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(given)},
        }
        for number, given in enumerate(arguments)
    ]
    answer = chat_completion()
    message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": calls}
    answer["choices"][0] |= {"message": message, "finish_reason": "tool_calls"}
    return answer


def embeddings() -> dict[str, Any]:
    """OpenAI's embedding of one text, as its SDK asks for it: base64 of floats."""
    vector = {"object": "embedding", "index": 0, "embedding": "AACAPwAAAEA="}
    usage = {"prompt_tokens": 11, "total_tokens": 11}
    return {"object": "list", "model": "gpt-test", "data": [vector], "usage": usage}


def response_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """OpenAI's answer of the Responses API, streamed."""
    whole = response_object("".join(words := list(words)))
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    item = whole["output"][0]
    part = item["content"][0]
    events = [
        {"type": "response.created", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": word} for word in words),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [
        f"event: {event['type']}\n".encode() + _data(event | {"sequence_number": number})
        for number, event in enumerate(events)
    ]


def gemini_answer(content: str = "Hello.") -> dict[str, Any]:
    """Google's answer to generateContent."""
    said = {"role": "model", "parts": [{"text": content}]}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    return {
        "candidates": [{"index": 0, "content": said, "finishReason": "STOP"}],
        "usageMetadata": usage,
        "modelVersion": "gemini-test",
        "responseId": "gemini-1",
    }


def gemini_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """Google's answer to streamGenerateContent as server-sent events."""
    answers = [gemini_answer(word) for word in words]
    for answer in answers[:-1]:
        del answer["candidates"][0]["finishReason"]
    return [b"data: " + json.dumps(answer).encode() + b"\r\n\r\n" for answer in answers]


def converse_answer(content: str = "Hello.") -> dict[str, Any]:
    """Amazon's answer to Converse."""
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": content}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
        "metrics": {"latencyMs": 1},
    }


def converse_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """Amazon's answer to ConverseStream, in its binary frames."""
    texts = [{"contentBlockIndex": 0, "delta": {"text": word}} for word in words]
    usage = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
    return [
        _amazon_frame("messageStart", {"role": "assistant"}),
        *(_amazon_frame("contentBlockDelta", text) for text in texts),
        _amazon_frame("messageStop", {"stopReason": "end_turn"}),
        _amazon_frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
    ]


def _amazon_frame(kind: str, payload: dict[str, Any]) -> bytes:
    names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in names.items()
    )
    body = json.dumps(payload).encode()
    start = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    frame = start + struct.pack(">I", zlib.crc32(start)) + headers + body
    return frame + struct.pack(">I", zlib.crc32(frame))


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
