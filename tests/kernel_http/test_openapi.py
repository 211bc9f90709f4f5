"""The description at ``/v0/openapi.json`` is true, and what fits it never fails."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.http.app import _document
from rebuno_sync.kernel.http.auth import Auth
from rebuno_sync.kernel.http.described import DESCRIBED
from rebuno_sync.kernel.http.event_stream import EventStream
from rebuno_sync.kernel.http.routes import ROUTES, find
from rebuno_sync.types import LeaseKey

from .moves import Inbox, start
from .wire import AGENT, TOKEN, Wire

DOCUMENT = json.loads(_document())
OPERATIONS = [
    (pattern, method) for pattern, methods in DOCUMENT["paths"].items() for method in methods
]


def test_every_route_is_described_and_no_other() -> None:
    """The table of routes and the description have the same paths and methods."""
    routes = {(pattern, method) for pattern, methods in ROUTES.items() for method in methods}
    assert {(pattern, method.upper()) for pattern, method in OPERATIONS} == routes
    assert {f"{method} {pattern}" for pattern, method in routes} <= DESCRIBED.keys()


def test_it_is_served_to_everybody(wire: Wire) -> None:
    answer = wire.send("GET", "/v0/openapi.json")
    assert (answer.status, answer.json) == (200, DOCUMENT)


def test_it_says_how_each_route_is_authenticated() -> None:
    """And which scope a key needs."""
    for pattern, methods in ROUTES.items():
        for method, route in methods.items():
            operation = DOCUMENT["paths"][pattern][method.lower()]
            wants = {name for one in operation["security"] for name in one}
            assert (
                wants
                == {
                    Auth.NONE: set(),
                    Auth.BEARER: {"bearer"},
                    Auth.HMAC: {"signature"},
                    Auth.EITHER: {"bearer", "signature"},
                }[route.auth]
            )
            keys = "API keys need" in operation.get("description", "")
            assert keys is (route.auth in (Auth.BEARER, Auth.EITHER))


class Authentic:
    """The kernel's app, to which every request comes with the right credentials."""

    def __init__(self, kernel: Kernel, clock: ManualClock, lease: LeaseKey) -> None:
        self._app = KernelApp(kernel, TOKEN)
        self._wire = Wire(kernel, clock, self._app)
        self._lease = lease

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        target = environ["REQUEST_URI"]
        found = find(target.partition("?")[0])
        route = found and found.methods.get(environ["REQUEST_METHOD"])
        headers = {"Authorization": f"Bearer {TOKEN}"}
        if route and route.auth is Auth.HMAC:
            headers = self._wire.signed(environ["REQUEST_METHOD"], target, body, self._lease)
        environ.pop("HTTP_REBUNO_SIGNATURE", None)
        for name, value in headers.items():
            environ["HTTP_" + name.upper().replace("-", "_")] = value
        answer = self._app(environ, start)
        if isinstance(answer, EventStream):
            answer.close()
            return []
        return answer


@pytest.mark.parametrize(("pattern", "method"), OPERATIONS)
def test_what_fits_the_description_is_answered_as_described(
    kernel: Kernel, clock: ManualClock, inbox: Inbox, pattern: str, method: str
) -> None:
    """No 500; the status, the type and the body of each answer are among those described."""
    lease = start(kernel, inbox)
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.app = Authentic(kernel, clock, lease)

    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[pattern][method].as_strategy())
    def ask(case: Any) -> None:
        if "id" in case.path_parameters:
            case.path_parameters["id"] = AGENT if "agents" in pattern else lease.execution_id
        if isinstance(case.body, dict) and "agent_id" in case.body:
            case.body["agent_id"] = AGENT
        case.call_and_validate(
            checks=(
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            )
        )

    ask()
