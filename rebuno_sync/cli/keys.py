"""``rebuno-sync keys``: API keys, by which others may ask a kernel."""

from __future__ import annotations

import argparse

from ..types import ApiKey, Scope
from .asked import Operator
from .printing import fields, of, print_json, table, when
from .subjects import Commands, Subject

__all__ = ["add_to"]


def add_to(commands: Commands) -> None:
    """Describe the commands."""
    keys = Subject(commands, "keys", "make, list and end the API keys of a kernel")
    create = keys.asks("create", _create, "make a key; its token is shown this once")
    create.add_argument("name", metavar="NAME", help="whose it is, for people")
    create.add_argument(
        "--scope",
        action="append",
        dest="scopes",
        required=True,
        choices=[str(scope) for scope in Scope],
        metavar="SCOPE",
        help="what it may be used for; give it several times for several: " + ", ".join(Scope),
    )
    keys.asks("list", _list, "list the keys, revoked ones too, without their tokens")
    rotate = keys.asks("rotate", _rotate, "give a key a new token; the old one ends at once")
    revoke = keys.asks("revoke", _revoke, "let nobody in by a key any more")
    for parser in (rotate, revoke):
        parser.add_argument("key_id", metavar="KEY", help="its id")


def _create(kernel: Operator, options: argparse.Namespace) -> None:
    _hand_over(kernel.create_key(options.name, options.scopes), options)


def _rotate(kernel: Operator, options: argparse.Namespace) -> None:
    _hand_over(kernel.rotate_key(options.key_id), options)


def _hand_over(key: ApiKey, options: argparse.Namespace) -> None:
    if options.json:
        print_json(of(key))
        return
    fields([("key", key.id), ("name", key.name), ("scopes", " ".join(key.scopes))])
    print(f"token   {key.token}")
    print(
        "The kernel shows the token this once and keeps its hash alone. If it gets lost, rotate it."
    )


def _list(kernel: Operator, options: argparse.Namespace) -> None:
    found = kernel.list_keys()
    if options.json:
        print_json([_without_token(key) for key in found])
        return
    table(
        ["KEY", "NAME", "MADE", "REVOKED", "SCOPES"],
        [
            (key.id, key.name, when(key.created_at), when(key.revoked_at), " ".join(key.scopes))
            for key in found
        ],
    )


def _without_token(key: ApiKey) -> dict[str, object]:
    return {name: it for name, it in of(key).items() if name != "token"}


def _revoke(kernel: Operator, options: argparse.Namespace) -> None:
    kernel.revoke_key(options.key_id)
    print_json({"revoked": options.key_id}) if options.json else print(f"revoked {options.key_id}")
