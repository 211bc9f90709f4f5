"""The description of the HTTP interface that a kernel serves at ``/v0/openapi.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic.json_schema import models_json_schema

from ...types import (
    Agent,
    ApiKey,
    Approval,
    Event,
    Execution,
    ExecutionPage,
    ForkPoints,
    PolicyReport,
    ResourceView,
    Scope,
    Step,
)
from .auth import Auth
from .described import DESCRIBED, SCHEMAS
from .scopes import SCOPES

__all__ = ["Asks", "document"]

_MODELS = (
    *(Execution, ExecutionPage, Step, Event, Agent, ApiKey, Approval),
    *(ForkPoints, PolicyReport, ResourceView),
)
_WITH_BODY = frozenset({"POST", "PUT"})

_SECURITY: dict[Auth, list[dict[str, list[str]]]] = {
    Auth.BEARER: [{"bearer": []}],
    Auth.HMAC: [{"signature": []}],
    Auth.EITHER: [{"bearer": []}, {"signature": []}],
    Auth.NONE: [],
}


class Asks(NamedTuple):
    """One route: how it is authenticated."""

    method: str
    pattern: str
    auth: Auth


def document(routes: list[Asks]) -> bytes:
    """OpenAPI 3.1, as JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route)
    text = json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "rebuno-sync kernel",
                "version": "0",
                "description": "The embedded kernel of rebuno_sync over HTTP.",
            },
            "paths": paths,
            "components": {"schemas": _schemas(), "securitySchemes": _schemes()},
        }
    )
    return text.encode()


def _operation(route: Asks) -> dict[str, Any]:
    method, pattern = route.method, route.pattern
    described = DESCRIBED[f"{method} {pattern}"]
    scopes = (
        SCOPES.get(f"{method} {pattern}", ()) if route.auth in (Auth.BEARER, Auth.EITHER) else ()
    )
    name = re.sub(r"\W+", "_", f"{method.lower()}_{pattern.removeprefix('/v0/')}").strip("_")
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": described.summary,
        "security": _SECURITY[route.auth],
        "parameters": [
            {"name": part, "in": "path", "required": True, "schema": {"type": "string"}}
            for part in re.findall(r"\{(\w+)\}", pattern)
        ]
        + [
            {"name": query, "in": "query", "schema": {"type": kind}}
            for query, kind in described.query.items()
        ]
        + [
            {"name": header, "in": "header", "required": True, "schema": {"type": "string"}}
            for header in (
                ("Rebuno-Dispatch-Id", "Rebuno-Dispatch-Attempt") if described.lease else ()
            )
        ],
        "responses": _responses(route, described.status, described.answer, described.content_type),
    }
    if scopes:
        operation["description"] = "API keys need " + ", ".join(scopes) + "."
    if described.body and method in _WITH_BODY:
        operation["requestBody"] = {
            "required": described.body_required,
            "content": {"application/json": {"schema": described.body}},
        }
    return operation


def _responses(route: Asks, status: int, answer: Any, content_type: str) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "Done."}
    if answer is not None:
        success["content"] = {content_type: {"schema": answer}}
    error = {
        "description": "An error.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    statuses = ["503"] if route.auth is Auth.NONE else ["400", "401", "403", "404", "409", "503"]
    return {str(status): success, **dict.fromkeys(statuses, error)}


def _schemas() -> dict[str, Any]:
    _, found = models_json_schema(
        [(model, "validation") for model in _MODELS],
        ref_template="#/components/schemas/{model}",
    )
    return {**found["$defs"], **SCHEMAS, "Scope": {"type": "string", "enum": sorted(Scope)}}


def _schemes() -> Mapping[str, Any]:
    return {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token, or an API key."},
        "signature": {
            "type": "apiKey",
            "in": "header",
            "name": "Rebuno-Signature",
            "description": "An agent's signature, with Rebuno-Agent-Id and Rebuno-Timestamp.",
        },
    }
