"""The command lines that a page has, held against the commands that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any, Final

import typer

from acklast.cli.root import app

_BLOCK: Final = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN: Final = re.compile(r"`([^`\n]+)`")
_ROOT: Final[Any] = typer.main.get_command(app)


def command_lines(page: str) -> Iterator[str]:
    """Every command of acklast in a page's blocks and in its text, without remarks."""
    lines = [line for block in _BLOCK.findall(page) for line in _typed(block)]
    for line in [*lines, *_SPAN.findall(_BLOCK.sub("", page))]:
        if line.startswith("acklast "):
            yield line.partition(" #")[0].rstrip(" \\")


def _typed(block: str) -> list[str]:
    """The lines that somebody types: behind a prompt, where the block has one."""
    lines = block.splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")] or lines


def problem(line: str) -> str:
    """Why a command line is none; nothing where it is one. Its values may be placeholders."""
    words = shlex.split(line, comments=True)[1:]
    command, path = _ROOT, "acklast"
    while words and words[0] in getattr(command, "commands", {}):
        command, path = command.commands[words[0]], f"{path} {words.pop(0)}"
    if getattr(command, "commands", None) and not command.invoke_without_command:
        return f"{path} {words[0] if words else ''} is no command"
    options = {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}
    odd = [word for word in words if word.startswith("-") and word.partition("=")[0] not in options]
    if odd:
        return f"{path} has no option {odd[0]}"
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    plain = [word for word in words if not word.startswith("-")]
    return f"{path} takes no {plain[0]}" if plain and not (arguments or options & set(words)) else ""
