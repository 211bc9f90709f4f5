"""The architecture of docs/explanation/design.md: imports go down, each right has one owner.

Every rule is a function that yields what it objects to in one module. It is held against the
package, and against a small source that breaks it, so that a rule which sees nothing cannot pass.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "rebuno_sync"
ROOT = "rebuno_sync"

LAYERS = {
    "words": [
        "errors",
        "wire",
        "key_types",
        "resource_types",
        "policy_types",
        "types",
        "ports",
        "clock",
        "closing",
    ],
    "pure": [
        "naming",
        "strict",
        "canonical",
        "signing",
        "codec",
        "failures",
        "outcomes",
        "retrying",
        "refusals",
        "binding",
        "replies",
        "endings",
        "combined",
    ],
    "execution stack": [
        *("workers", "stalling", "heartbeat", "turns", "environments", "recording", "nested"),
        *(
            "frames",
            "bodies",
            "history",
            "drift",
            "past",
            "carrying",
            "timed",
            "tries",
            "open_calls",
            "model_calls",
        ),
        *("context", "pool", "effects", "parallelism", "parking", "durable"),
        *("subagents", "patching", "resources", "llm"),
        *("mcp", "logs"),
    ],
    "edges": [
        *("transport", "delivery", "messages", "remote_clock", "resource_calls"),
        *("kernel_client", "asking", "governance", "access", "branching", "listening", "client"),
        *("sender", "held", "backlog", "outbox"),
        *("agent", "webhook", "wsgi", "pushing", "serving", "service", "host"),
    ],
    "kernel": ["kernel"],
    "roots": ["local", ROOT, "cli", "__main__"],
}
"""Each layer's modules and packages. Within a layer, a module may import those before it."""

BELOW = {
    "words": set(),
    "pure": {"words"},
    "execution stack": {"words", "pure"},
    "edges": {"words", "pure", "execution stack"},
    "kernel": {"words", "pure"},
    "roots": {"words", "pure", "execution stack", "edges", "kernel"},
}

READS_TIME = {"clock"}
STARTS_THREADS = {"workers", "heartbeat", "serving", "pool", "parallelism"}
STARTS_THREADS |= {
    "kernel.store.commits",
    "kernel.store.watch",
    "kernel.dispatcher",
    "kernel.crew",
    "cli.provider",
}
SPEAKS_HTTP = {"transport", "delivery", "kernel_client", "client", "listening", "pushing"}
SPEAKS_HTTP |= {"llm", "mcp", "cli"}
USES_SQLITE = {"kernel.store"}
CONTEXT_VARIABLE = "context"
COPIES_CONTEXT = {"carrying", "pool"}
KEEPS_SIGNALS = {
    "agent": "turns a signal into an Outcome",
    "pool": "hands it to a future, which raises it again",
    "timed": "raises in one thread what a body raised in another",
}
"""Each with its reason."""

TIME_MODULES = {"time", "random", "secrets"}
TIME_CALLS = {
    *("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7", "os.urandom", "os.getrandom"),
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
}
THREAD_STARTERS = {
    *("Thread", "Timer", "ThreadPoolExecutor", "ThreadPool", "ThreadingMixIn"),
    *("ThreadingHTTPServer", "start_new_thread", "start_joinable_thread"),
}
HTTP_LIBRARIES = {"requests", "urllib3", "http", "urllib.request", "httpx", "httpx2", "aiohttp"}
HTTP_LIBRARIES |= {"socket", "ssl", "socketserver"}
SIGNALS = {"Signal", "Blocked", "Terminated", "LeaseSuperseded", "Interrupted"}
CATCHES_SIGNALS = {*SIGNALS, "BaseException", "BaseExceptionGroup"}
NAMES_OF_NOTHING = {"utils", "helpers", "common", "base", "manager"}
MOST_LINES = 400


@dataclass(frozen=True)
class Module:
    """One file of the package. ``name`` is dotted, without the package's own name."""

    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def head(self) -> str:
        return self.name.partition(".")[0]

    def at(self, node: ast.AST, objection: str) -> str:
        inside = [] if self.name == ROOT else self.name.split(".")
        path = "/".join([ROOT, *inside, *(["__init__"] if self.is_package else [])])
        return f"{path}.py:{getattr(node, 'lineno', 1)}: {objection}"

    def imports(self) -> Iterator[tuple[ast.AST, str]]:
        """Every imported dotted name; ``from a import b`` gives ``a.b``."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node, alias.name
            elif isinstance(node, ast.ImportFrom):
                source = self._absolute(node)
                for alias in node.names:
                    yield node, f"{source}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        home = [ROOT] if self.name == ROOT else [ROOT, *self.name.split(".")]
        climb = node.level - 1 if self.is_package else node.level
        kept = home[: len(home) - climb]
        return ".".join([*kept, *filter(None, [node.module])])

    def own_imports(self) -> Iterator[tuple[ast.AST, str]]:
        """The names imported from this package, without its own name; ``""`` is its root."""
        for node, name in self.imports():
            package, _, rest = name.partition(".")
            if package == ROOT:
                yield node, rest

    def uses(self) -> Iterator[tuple[ast.AST, str]]:
        """Every dotted name that is read, and every one that is imported by ``from``."""
        for node in self.nodes:
            if isinstance(node, ast.Attribute | ast.Name) and (name := dotted(node)):
                yield node, name
        for node, name in self.imports():
            if isinstance(node, ast.ImportFrom):
                yield node, name


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def last(name: str, parts: int = 1) -> str:
    return ".".join(name.split(".")[-parts:])


def within(name: str, owners: set[str]) -> bool:
    """Whether a dotted name is one of ``owners``, or inside one."""
    return any(name == owner or name.startswith(owner + ".") for owner in owners)


@cache
def package() -> list[Module]:
    return [module_at(path) for path in sorted(PACKAGE.rglob("*.py"))]


def module_at(path: Path) -> Module:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    parts = parts[:-1] if is_package else parts
    return Module(".".join(parts) or ROOT, path.read_text("utf-8"), is_package)


def layer_of(head: str) -> str:
    for layer, heads in LAYERS.items():
        if head in heads:
            return layer
    raise LookupError(
        f"{ROOT}/{head} is in no layer; add it to LAYERS in {Path(__file__).name} "
        "and to the table of docs/explanation/design.md"
    )


def imports_upwards(module: Module) -> Iterator[str]:
    layer = layer_of(module.head)
    order = LAYERS[layer]
    for node, name in module.own_imports():
        # ``from . import errors`` names a module, ``from . import tool`` the package itself.
        head = name.partition(".")[0]
        target = head if known(head) else ROOT
        if target == module.head:
            continue
        found = layer_of(target)
        lower = found in BELOW[layer]
        earlier = found == layer and order.index(target) < order.index(module.head)
        if not lower and not earlier:
            yield module.at(node, f"{module.head} ({layer}) imports {target} ({found})")


def known(head: str) -> bool:
    """Whether ``head`` names a module: one in a layer, or a file that has still to get one."""
    in_a_layer = any(head in heads for heads in LAYERS.values())
    return in_a_layer or any(module.head == head for module in package())


def touches_the_context_variable(module: Module) -> Iterator[str]:
    if module.name == CONTEXT_VARIABLE:
        return
    for node, name in module.uses():
        if name.startswith("contextvars."):
            copies = name == "contextvars.copy_context" and module.name in COPIES_CONTEXT
            if not copies:
                yield module.at(node, f"{name}: only {CONTEXT_VARIABLE}.py has a context variable")
        elif last(name) in context_variables():
            yield module.at(node, f"{name} is {CONTEXT_VARIABLE}.py's own; ask its functions")


@cache
def context_variables() -> frozenset[str]:
    path = PACKAGE / f"{CONTEXT_VARIABLE}.py"
    return variables_in(module_at(path)) if path.exists() else frozenset()


def variables_in(module: Module) -> frozenset[str]:
    """The names of the context variables that a module defines at its top."""
    found = set()
    for node in module.tree.body:
        if isinstance(node, ast.AnnAssign | ast.Assign) and isinstance(node.value, ast.Call):
            # A type argument may stand between the class and its call.
            maker = node.value.func
            maker = maker.value if isinstance(maker, ast.Subscript) else maker
            if last(dotted(maker)) == "ContextVar":
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {dotted(target) for target in targets}
    return frozenset(found)


def reads_time_or_randomness(module: Module) -> Iterator[str]:
    if module.name in READS_TIME:
        return
    for node, name in module.imports():
        if name.partition(".")[0] in TIME_MODULES:
            yield module.at(node, f"imports {name}: ask the Clock, wait on a condition")
    for node, name in module.uses():
        if last(name, 2) in TIME_CALLS:
            yield module.at(node, f"{name}: ask the Clock")


def starts_threads(module: Module) -> Iterator[str]:
    if within(module.name, STARTS_THREADS):
        return
    for node in module.nodes:
        makers = [node.func] if isinstance(node, ast.Call) else []
        makers = node.bases if isinstance(node, ast.ClassDef) else makers
        for maker in makers:
            if last(dotted(maker)) in THREAD_STARTERS:
                yield module.at(node, f"{dotted(maker)}: threads start in {sorted(STARTS_THREADS)}")


def speaks_http(module: Module) -> Iterator[str]:
    if within(module.name, SPEAKS_HTTP):
        return
    for node, name in module.imports():
        if within(name, HTTP_LIBRARIES):
            yield module.at(node, f"imports {name}: HTTP is spoken in {sorted(SPEAKS_HTTP)}")


def uses_sqlite(module: Module) -> Iterator[str]:
    if within(module.name, USES_SQLITE):
        return
    for node, name in module.imports():
        if within(name, {"sqlite3", "_sqlite3"}):
            yield module.at(node, f"imports {name}: SQLite is used in {sorted(USES_SQLITE)}")


def keeps_signals(module: Module) -> Iterator[str]:
    """Approximate: a handler that raises anything anywhere in its body counts as passing on."""
    if module.name in KEEPS_SIGNALS:
        return
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            caught = names_in(node.type) if node.type else {"BaseException"}
            if caught & CATCHES_SIGNALS and not raises(node.body):
                yield module.at(node, "keeps a signal: raise it again, or catch Exception")
        elif isinstance(node, ast.Call) and last(dotted(node.func)) == "suppress":
            for name in set().union(*map(names_in, node.args)) & CATCHES_SIGNALS:
                yield module.at(node, f"suppresses {name}: suppress an Exception")


def names_in(expression: ast.AST) -> set[str]:
    return {last(name) for node in ast.walk(expression) if (name := dotted(node))}


def raises(body: list[ast.stmt]) -> bool:
    """Whether a block has a ``raise`` of its own; one in a nested function does not count."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Raise):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))
    return False


def is_named_badly(module: Module) -> Iterator[str]:
    name = last(module.name)
    if name.strip("_") in NAMES_OF_NOTHING:
        yield module.at(module.tree, "says nothing of what is inside: name it by its one idea")
    if name in exported_objects():
        yield module.at(module.tree, f"has the name of the exported {name}: name it by a noun")


@cache
def exported_objects() -> frozenset[str]:
    path = PACKAGE / "__init__.py"
    return objects_of(module_at(path)) if path.exists() else frozenset()


def objects_of(root: Module) -> frozenset[str]:
    """What the package exports other than modules: what it imports from inside a module."""
    return frozenset(last(name) for _, name in root.own_imports() if "." in name)


def is_long(module: Module) -> Iterator[str]:
    lines = len(module.source.splitlines())
    if lines > MOST_LINES:
        yield module.at(module.tree, f"{lines} lines are two ideas: {MOST_LINES} at most")


RULES: dict[Callable[[Module], Iterator[str]], list[Module]] = {
    imports_upwards: [
        Module("errors", "from .types import Step"),
        Module("codec", "from rebuno_sync.context import ExecutionContext"),
        Module("codec", "import rebuno_sync.context"),
        Module("codec", "from . import context"),
        Module("codec", "from . import tool"),
        Module("codec", "from .failures import describe"),
        Module("codec", "if TYPE_CHECKING:\n    from .agent import Agent"),
        Module("context", "def late():\n    from .effects import tool"),
        Module("agent", "from .kernel import Kernel"),
        Module("context", "from .kernel.store import Store"),
        Module("kernel.store.store", "from ...context import ExecutionContext"),
        Module("kernel", "from ..heartbeat import Lease", is_package=True),
    ],
    touches_the_context_variable: [
        Module("effects", "from contextvars import ContextVar"),
        Module("effects", "import contextvars\nhere = contextvars.ContextVar('here')"),
        Module("effects", "import contextvars\ncontextvars.copy_context()"),
        Module("pool", "from contextvars import ContextVar"),
    ],
    reads_time_or_randomness: [
        Module("context", "import time"),
        Module("context", "from time import sleep"),
        Module("context", "from random import random"),
        Module("context", "import secrets"),
        Module("context", "import uuid\nuuid.uuid4()"),
        Module("context", "from uuid import uuid4"),
        Module("context", "import os\nos.urandom(8)"),
        Module("context", "from datetime import datetime\ndatetime.now()"),
        Module("context", "import datetime\ndatetime.datetime.utcnow()"),
        Module("context", "from datetime import date\nfill(default=date.today)"),
    ],
    starts_threads: [
        Module("context", "import threading\nthreading.Thread(target=print).start()"),
        Module("context", "from threading import Timer\nTimer(1, print)"),
        Module("context", "import concurrent.futures as f\nf.ThreadPoolExecutor(4)"),
        Module("context", "import _thread\n_thread.start_new_thread(print, ())"),
        Module("context", "import threading\nclass Beat(threading.Thread): ..."),
    ],
    speaks_http: [
        Module("context", "import requests"),
        Module("context", "from urllib3.util import Retry"),
        Module("context", "import http.client"),
        Module("context", "from urllib.request import urlopen"),
        Module("kernel.api", "import socket"),
    ],
    uses_sqlite: [
        Module("context", "import sqlite3"),
        Module("kernel.steps", "from sqlite3 import Connection"),
    ],
    keeps_signals: [
        Module("effects", "try: f()\nexcept: pass"),
        Module("effects", "try: f()\nexcept BaseException as error: keep(error)"),
        Module("effects", "try: f()\nexcept (OSError, errors.Blocked): pass"),
        Module("effects", "try: f()\nexcept Signal:\n    def g(): raise"),
        Module("effects", "try: f()\nexcept* Terminated: pass"),
        Module("effects", "with contextlib.suppress(BaseException): f()"),
    ],
    is_named_badly: [Module("utils", ""), Module("kernel.base", ""), Module("_helpers", "")],
    is_long: [Module("context", "pass\n" * (MOST_LINES + 1))],
}

HARMLESS = [
    Module("types", "from .errors import RebunoError"),
    Module("codec", "from . import canonical, errors\nfrom .types import Step"),
    Module("effects", "import contextlib\nfrom .pool import ThreadPoolExecutor"),
    Module("pool", "import contextvars\ncontextvars.copy_context()"),
    Module("context", "from contextvars import ContextVar"),
    Module("context", "import uuid\nuuid.UUID(int=clock.now())\ndatetime.fromisoformat(text)"),
    Module("kernel.store.store", "import sqlite3\nfrom ..locks import LockFile"),
    Module("kernel", "from .embedded import Kernel", is_package=True),
    Module("kernel.api", "from http_words import x\nfrom urllib.parse import urlsplit"),
    Module("heartbeat", "import threading\nthreading.Thread(target=print)"),
    Module("cli.provider", "import http.server, threading\nthreading.Thread(target=print)"),
    Module("local", "from .agent import Agent\nfrom .kernel import Kernel"),
    Module(ROOT, "from . import errors, types\nfrom .effects import tool", is_package=True),
    Module("effects", "try: f()\nexcept BaseException:\n    tidy()\n    raise"),
    Module("effects", "try: f()\nexcept Exception: pass"),
    Module("agent", "try: f()\nexcept Signal as signal: return_(signal)"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks(rule: Callable[[Module], Iterator[str]]) -> None:
    objections = [objection for module in package() for objection in rule(module)]
    assert not objections, "\n".join(["", *objections])


@pytest.mark.parametrize(
    ("rule", "module"),
    [(rule, module) for rule, broken in RULES.items() for module in broken],
    ids=lambda value: value.source[:60] if isinstance(value, Module) else value.__name__,
)
def test_a_breach_is_seen(rule: Callable[[Module], Iterator[str]], module: Module) -> None:
    assert list(rule(module))


@pytest.mark.parametrize("module", HARMLESS, ids=lambda module: f"{module.name}:{module.source}")
def test_what_is_allowed_passes(module: Module) -> None:
    assert [objection for rule in RULES for objection in rule(module)] == []


def test_a_module_in_no_layer_is_named() -> None:
    with pytest.raises(LookupError, match=r"rebuno_sync/novelty is in no layer; add it to LAYERS"):
        list(imports_upwards(Module("novelty", "")))


def test_the_context_variable_is_found_however_it_is_written() -> None:
    source = "a = ContextVar('a')\nb: ContextVar[int] = contextvars.ContextVar('b')\n"
    source += "c = ContextVar[int]('c')\nd = other('d')"
    assert variables_in(Module("context", source)) == {"a", "b", "c"}


def test_exported_modules_are_no_exported_objects() -> None:
    source = "from . import errors, types\nfrom .effects import step, tool\nfrom .kernel.x import y"
    assert objects_of(Module(ROOT, source, is_package=True)) == {"step", "tool", "y"}


def graph(modules: list[Module]) -> dict[str, set[str]]:
    """Who imports whom, type-only and late imports included."""
    names = {module.name for module in modules}
    edges: dict[str, set[str]] = {}
    for module in modules:
        imported = {imported_module(name, names) for _, name in module.own_imports()}
        edges[module.name] = imported - {module.name}
    return edges


def imported_module(name: str, names: set[str]) -> str:
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name or ROOT


def test_imports_form_no_cycle() -> None:
    TopologicalSorter(graph(package())).prepare()


def test_a_cycle_is_seen() -> None:
    cycle = [
        Module("kernel.steps", "from .events import append"),
        Module("kernel.events", "def late():\n    from .steps import find"),
    ]
    with pytest.raises(CycleError, match="cycle"):
        TopologicalSorter(graph(cycle)).prepare()
