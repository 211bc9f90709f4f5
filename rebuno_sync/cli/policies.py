"""``rebuno-sync policies``: what agents may do, set, shown and checked."""

from __future__ import annotations

import argparse
import sys
from hashlib import sha256

from ..errors import ValidationError
from ..kernel.policy import BundleInvalid, Policy, compiled
from ..types import Agent
from . import trials
from .asked import Operator
from .bundles import Problem, judged, problem_in, read_text
from .failing import FAILED, Refused
from .printing import plain, print_json, table
from .subjects import Commands, Subject

__all__ = ["add_to"]


def add_to(commands: Commands) -> None:
    """Describe the commands."""
    policies = Subject(commands, "policies", "check, set, show and try the policies of agents")
    check = policies.does("check", _check, "check a policy file; asks no kernel")
    check.add_argument("files", nargs="+", metavar="FILE", help="a bundle (YAML); - for the input")
    policies.asks("list", _list, "list the agents and whether they have a policy")
    show = policies.asks("show", _show, "print an agent's policy as it was set")
    put = policies.asks("set", _set, "give an agent a policy; it counts from its next new step on")
    remove = policies.asks("remove", _remove, "take an agent's policy away: everything is allowed")
    for parser in (show, put, remove):
        parser.add_argument("agent_id", metavar="AGENT", help="the agent, which is registered")
    put.add_argument("file", metavar="FILE", help="a bundle (YAML); - for the input")
    trials.add_to(policies)


def _check(options: argparse.Namespace) -> int:
    found = [(name, judged(name, read_text(name))) for name in options.files]
    if options.json:
        print_json([_verdict(name, it) for name, it in found])
    else:
        for name, it in found:
            if isinstance(it, Problem):
                print("\n".join(map(plain, it.lines())), file=sys.stderr)
            else:
                print(plain(f"{name}: {_described(it)}"))
    return FAILED if any(isinstance(it, Problem) for _, it in found) else 0


def _verdict(name: str, it: Policy | Problem) -> dict[str, object]:
    if isinstance(it, Problem):
        return {"valid": False, **it._asdict()}
    default = "allow" if it.allows_by_default else "deny"
    return {"valid": True, "file": name, "rules": len(it.rules), "default_action": default}


def _described(policy: Policy) -> str:
    default = "allow" if policy.allows_by_default else "deny"
    rules = "1 rule" if len(policy.rules) == 1 else f"{len(policy.rules)} rules"
    return f"{rules}, else {default}"


def _list(kernel: Operator, options: argparse.Namespace) -> None:
    agents = kernel.agents()
    if options.json:
        print_json([_of(agent) for agent in agents])
        return
    table(
        ["AGENT", "POLICY", "SHA-256"],
        [(it.id, _summary(it.policy_bundle), _hash(it.policy_bundle)[:12] or "-") for it in agents],
    )


def _of(agent: Agent) -> dict[str, str]:
    bundle = agent.policy_bundle
    return {"agent_id": agent.id, "policy_bundle": bundle, "sha256": _hash(bundle)}


def _hash(bundle: str) -> str:
    """As events name it (``policy_hash``)."""
    return sha256(bundle.encode()).hexdigest() if bundle else ""


def _summary(bundle: str) -> str:
    if not bundle:
        return "none: everything is allowed"
    try:
        return _described(compiled(bundle))
    except BundleInvalid:
        return "cannot be read: everything is denied"
    except ImportError:
        return "set"


def _show(kernel: Operator, options: argparse.Namespace) -> None:
    agent = kernel.get_agent(options.agent_id)
    if options.json:
        print_json(_of(agent))
    elif agent.policy_bundle:
        sys.stdout.write(agent.policy_bundle.removesuffix("\n") + "\n")
    else:
        print(f"{plain(agent.id)} has no policy: everything is allowed", file=sys.stderr)


def _set(kernel: Operator, options: argparse.Namespace) -> None:
    text = read_text(options.file)
    if not text.strip():
        raise Refused(
            f"{options.file} is empty; to take a policy away: rebuno-sync policies remove"
        )
    try:
        kernel.set_policy(options.agent_id, text)
    except ValidationError as error:
        raise Refused(*problem_in(options.file, text, error.message).lines()) from None
    _done(f"{options.agent_id} has the policy of {options.file}", options, _hash(text))


def _remove(kernel: Operator, options: argparse.Namespace) -> None:
    kernel.set_policy(options.agent_id, "")
    _done(f"{options.agent_id} has no policy: everything is allowed", options, "")


def _done(said: str, options: argparse.Namespace, sha: str) -> None:
    if options.json:
        print_json({"agent_id": options.agent_id, "sha256": sha})
    else:
        print(plain(said))
