"""``Kernel`` and ``Client`` are two roads to the same operator's methods."""

from __future__ import annotations

import inspect

import pytest

from rebuno_sync import Client
from rebuno_sync.kernel import Kernel

OF_A_FILE = {
    "backup": "copies the file",
    "export_execution": "takes an execution out of a file",
    "import_execution": "takes one into a file",
    "find": "hosts ask by a key; `create` with the key is an operator's way",
    "knows_agent": "hosts ask before they register",
}
OF_HOSTS = {
    *("claim", "leave_claim", "watch_lease", "start", "retry", "monotonic"),
    *("change_mark", "wait_for_change", "dispatcher", "host", "unhost"),
    *("deliver_webhooks", "stop_deliveries"),
}
"""What a process that runs handlers, or delivers to agents, asks of a kernel that it has."""


def methods(cls: type) -> dict[str, object]:
    return {name: it for name, it in inspect.getmembers(cls) if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(methods(Client)))
def test_a_method_of_one_is_a_method_of_the_other(name: str) -> None:
    """By the same name, with the same parameters, in the same order, with the same defaults."""
    theirs = methods(Kernel).get(name)
    assert theirs is not None, f"Kernel has no {name}"
    assert shape(theirs) == shape(methods(Client)[name])


def shape(method: object) -> list[tuple[str, object, object]]:
    assert callable(method)
    parameters = inspect.signature(method).parameters.values()
    return [(it.name, it.kind, it.default) for it in parameters]


def test_what_only_a_kernel_has_is_of_its_file_or_for_hosts() -> None:
    """Everything else an operator can do over HTTP as well."""
    only = set(methods(Kernel)) - set(methods(Client))
    assert only == OF_HOSTS | OF_A_FILE.keys()
