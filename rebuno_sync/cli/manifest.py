"""The manifest of ``rebuno-sync kernel --config``: agents that are registered at each start
(protocol.md 14.1)."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import APIError
from ..kernel import Kernel
from ..kernel.agents import LONGEST_LEASE_SECONDS
from ..kernel.policies import check_bundle

__all__ = ["ManifestError", "Registration", "read_manifest", "register"]

_log = logging.getLogger(__name__)

_REPLACED = (
    "as it is with the names of the environment replaced; put quotes around what comes from there"
)
_KEYS = {"id", "webhook_url", "secret", "lease_timeout_seconds", "policy", "policy_file"}
_NAME = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)


class ManifestError(Exception):
    """What is wrong with the manifest, and where."""


class Registration(NamedTuple):
    """One agent as the manifest has it."""

    id: str
    webhook_url: str
    secret: str
    lease_timeout_seconds: float
    policy: str | None

    def __repr__(self) -> str:
        return f"Registration(id={self.id!r}, webhook_url={self.webhook_url!r})"


def read_manifest(path: Path, environment: Mapping[str, str] = os.environ) -> list[Registration]:
    """Read and check all of it; raises ``ManifestError``."""
    try:
        import yaml
    except ImportError as error:
        raise ManifestError(
            "reading a manifest needs PyYAML: pip install 'rebuno-sync[kernel]'"
        ) from error
    try:
        text = path.read_text("utf-8")
        expanded = _expanded(text, environment)
        document = yaml.safe_load(expanded)
    except (OSError, ValueError) as error:
        raise ManifestError(f"{path}: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f", line {where.line + 1},"
        # Not from it: what it says quotes the line, and there may be a secret in it by now.
        why = _REPLACED if expanded != text else getattr(error, "problem", None) or error
        raise ManifestError(f"{path}{line} is not YAML: {why}") from None
    if isinstance(document, dict):
        _tell_unknown(f"{path}", document.keys() - {"agents"})
        document = document.get("agents")
    listed = document
    if listed is not None and not isinstance(listed, list):
        raise ManifestError(f"{path}: agents must be a list")
    found = [_registration(path, f"agents[{i}]", one) for i, one in enumerate(listed or ())]
    ids = [one.id for one in found]
    if twice := next((one for one in ids if ids.count(one) > 1), None):
        raise ManifestError(f"{path}: agent {twice!r} is listed twice")
    return found


def _tell_unknown(where: str, keys: Collection[object]) -> None:
    if keys:
        _log.warning("%s: unknown keys are ignored: %s", where, ", ".join(sorted(map(str, keys))))


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """As a shell does; an unset name stays, without its braces."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return environment.get(name, f"${name}")

    return _NAME.sub(value, text)


def _registration(path: Path, where: str, entry: Any) -> Registration:
    if not isinstance(entry, dict):
        raise ManifestError(f"{path}: {where} must be a mapping")
    _tell_unknown(f"{path}: {where}", entry.keys() - _KEYS)
    texts = {name: entry.get(name) for name in ("id", "webhook_url", "secret", "policy_file")}
    for name, value in [*texts.items(), ("policy", entry.get("policy"))]:
        if value is not None and not isinstance(value, str):
            raise ManifestError(f"{path}: {where}: {name} must be a text; put it in quotes")
    if not texts["id"]:
        raise ManifestError(f"{path}: {where}: id is required")
    if _NAME.fullmatch(texts["secret"] or ""):
        raise ManifestError(
            f"{path}: {where}: the secret is {texts['secret']}, which the environment does not have"
        )
    seconds = entry.get("lease_timeout_seconds") or 0
    if not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_LEASE_SECONDS:
        raise ManifestError(
            f"{path}: {where}: lease_timeout_seconds must be a number, at most"
            f" {LONGEST_LEASE_SECONDS:.0f}"
        )
    policy = entry.get("policy")
    if texts["policy_file"]:
        if policy is not None:
            raise ManifestError(f"{path}: {where}: give policy or policy_file, not both")
        policy = _read_policy(path, where, texts["policy_file"])
    return Registration(
        texts["id"], texts["webhook_url"] or "", texts["secret"] or "", float(seconds), policy
    )


def _read_policy(path: Path, where: str, name: str) -> str:
    """Relative to the manifest; not expanded."""
    try:
        return (path.parent / name).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ManifestError(f"{path}: {where}: policy_file: {error}") from error


def register(kernel: Kernel, agents: list[Registration]) -> None:
    """Register each, replacing what was known of it; agents that are not listed stay, and so does
    the policy of one that is listed without one: nothing is allowed by leaving it out.

    All policies are checked before the first is registered. Raises ``ManifestError``.
    """
    for agent in agents:
        try:
            check_bundle(agent.policy or "")
        except APIError as error:
            raise ManifestError(f"the policy of agent {agent.id!r}: {error.message}") from error
    for agent in agents:
        try:
            kernel.core.agents.register(
                agent.id,
                webhook_url=agent.webhook_url,
                secret=agent.secret,
                lease_timeout_seconds=agent.lease_timeout_seconds,
                policy=agent.policy,
            )
        except APIError as error:
            raise ManifestError(f"agent {agent.id!r}: {error.message}") from error
