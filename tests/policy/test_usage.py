"""What a model call used up, as its provider says (protocol.md 8.3)."""

from __future__ import annotations

import json

import pytest

from rebuno_sync.kernel.usage import usage_of
from rebuno_sync.types import Usage

STREAM = """\
event: message_start
data: {"message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}

  data: {"usage": {"output_tokens": 15}}
data: not JSON
data: [DONE]
"""


def used(sent: int, got: int) -> Usage:
    return Usage(input_tokens=sent, output_tokens=got)


@pytest.mark.parametrize(
    ("result", "usage"),
    [
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 5}}, used(10, 5)),
        ({"usage": {"input_tokens": 10, "output_tokens": 0}}, used(10, 0)),
        ({"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}, used(3, 4)),
        ({"inputTokens": 1, "outputTokens": 2}, used(1, 2)),
        ({"prompt_eval_count": 1, "eval_count": 2}, used(1, 2)),
        ([{"input_tokens": 1}, {"deep": [{"input_tokens": 7}]}], used(7, 0)),
        ({"input_tokens": 7.9}, used(7, 0)),
        ({"status": 200, "body": '{"usage": {"input_tokens": 9}}'}, used(9, 0)),
        ({"status": 200, "body": STREAM}, used(25, 15)),
        ({"body": "", "input_tokens": 4}, used(4, 0)),
        ({"body": {"input_tokens": 4}}, used(4, 0)),
        ({"input_tokens": "12"}, None),
        ({"input_tokens": True}, None),
        ({"input_tokens": -5}, None),
        ({"input_tokens": 10**30}, None),
        ({"text": "input_tokens: 5"}, None),
        ("text", None),
        (None, None),
    ],
)
def test_the_highest_numbers_count(result: object, usage: Usage | None) -> None:
    """Wherever they are, under any provider's names."""
    assert usage_of(json.dumps(result)) == usage
