"""docs/reference/cli.md says of the commands what they say of themselves."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rebuno_sync.cli.main import make_parser

PAGE = (Path(__file__).parent.parent.parent / "docs" / "reference" / "cli.md").read_text()
SHARED = "Which kernel"
"""The section that has the options of every command that asks a kernel."""


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands that do something."""
    below = [it for it in parser._actions if isinstance(it, argparse._SubParsersAction)]
    if not below:
        yield parser
    for action in below:
        for child in action.choices.values():
            yield from leaves(child)


COMMANDS = {parser.prog: parser for parser in leaves(make_parser())}


def heading(parser: argparse.ArgumentParser) -> str:
    """A command with the names of what it is given, as its section is called."""
    named = [str(it.metavar) for it in parser._actions if not it.option_strings]
    return " ".join([parser.prog, *named])


def section(title: str) -> str:
    assert f"\n## {title}\n" in PAGE, f"docs/reference/cli.md has no section {title!r}"
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def options_in(text: str) -> set[str]:
    """What the first column of the tables names."""
    cells = re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE)
    return set(re.findall(r"`(--[a-z-]+)", " ".join(cells)))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_its_section_with_every_option(name: str) -> None:
    """And with none that it does not take; those that name a kernel stand in one place."""
    parser = COMMANDS[name]
    taken = {it for action in parser._actions for it in action.option_strings} - {"-h", "--help"}
    told = options_in(section(heading(parser)))
    assert told <= taken
    assert taken - told <= options_in(section(SHARED))


def test_the_page_has_no_command_that_is_gone() -> None:
    """Each section that is called by a command is one's."""
    titles = set(re.findall(r"^## (rebuno-sync .*)$", PAGE, re.MULTILINE))
    assert titles == set(map(heading, COMMANDS.values()))


def test_the_list_leads_to_every_section() -> None:
    """By the anchors that are made of their headings."""
    anchors = set(re.findall(r"\(#(rebuno-sync-[a-z-]+)\)", PAGE))
    assert anchors == {heading(it).lower().replace(" ", "-") for it in COMMANDS.values()}
