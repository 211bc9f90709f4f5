"""Asks a kernel by the async SDK's client what each line of the input says, until it ends.

A line is a JSON list: the method, its arguments, its keywords, the token. So is what is answered:
``[value, null]``, or ``[null, [class, status, code]]`` for what was raised.
"""

import asyncio
import json
import sys

import pydantic
import rebuno

url = sys.argv[1]


def plain(value: object) -> object:
    """Something that JSON has."""
    if isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    return [plain(one) for one in value] if isinstance(value, list) else value


async def ask(method: str, args: list, keywords: dict, token: str) -> list:
    if link := keywords.pop("spawned_by", None):
        keywords["spawned_by"] = rebuno.types.SpawnedBy(**link)
    async with rebuno.Client(url, token) as client:
        try:
            return [plain(await getattr(client, method)(*args, **keywords)), None]
        except rebuno.APIError as error:
            return [None, [type(error).__name__, error.status_code, error.code]]


for line in sys.stdin:
    print(json.dumps(asyncio.run(ask(*json.loads(line)))), flush=True)
