"""API keys, as operators ask for them (protocol.md 2.3)."""

from __future__ import annotations

from .call import Call, json_response, no_content
from .decoding import bad_request, uuid_text
from .encoding import key_json, list_json
from .request import Response

__all__ = ["create_key", "list_keys", "revoke_key", "rotate_key"]

_CREATE = frozenset({"name", "scopes"})


def create_key(call: Call) -> Response:
    fields = call.fields(_CREATE)
    scopes = fields.array("scopes")
    if not all(isinstance(scope, str) for scope in scopes):
        raise bad_request("scopes must be texts")
    row, token = call.core.keys.create(fields.text("name"), scopes)
    return json_response(key_json(row, token), 201)


def list_keys(call: Call) -> Response:
    return json_response(list_json(key_json(row) for row in call.core.keys.all()))


def rotate_key(call: Call) -> Response:
    row, token = call.core.keys.rotate(_key_id(call))
    return json_response(key_json(row, token))


def revoke_key(call: Call) -> Response:
    call.core.keys.revoke(_key_id(call))
    return no_content()


def _key_id(call: Call) -> str:
    found = uuid_text(call.names[0])
    if found is None:
        raise bad_request("the path names no API key: its id must be a UUID")
    return found
