"""The command `keys` of both programs: every key of a configuration, for a terminal or as the page in docs/."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator

import typer
from pydantic import BaseModel

from shared.config_reference import Key, Section, chosen, names_of_ones_own

_NARROW, _WIDE = 40, 110


def print_keys(program: str, model: type[BaseModel], wanted: str, markdown: bool) -> None:
    """Print the reference of `model`, or of what the dotted path `wanted` names.

    Lines are wrapped on a terminal and whole everywhere else. Raises RequestError for a path that names nothing.
    """
    found = chosen(model, wanted)
    for line in names_of_ones_own(model, wanted):
        typer.echo(line, err=True)
    if markdown:
        typer.echo(as_markdown(program, found), nl=False)
        return
    width = min(max(shutil.get_terminal_size().columns, _NARROW), _WIDE) if sys.stdout.isatty() else None
    for number, (section, names) in enumerate(found):
        typer.echo(nl=number > 0)
        typer.secho(section.title, bold=True)
        for line in as_text(section, names, width):
            typer.echo(line)


def as_text(section: Section, names: list[str], width: int | None) -> Iterator[str]:
    """The lines under a section's title; `width` in columns, None for lines of any length."""
    whole = len(names) == len(section.model.model_fields)
    for note in section.notes() if whole else ():
        yield from _wrapped(note, "  ", width)
    for key in section.entries():
        if key.name in names:
            yield from _wrapped(f"{key.name}: {key.type}; {_default(key)}", "  ", width)
            yield from _wrapped(key.meaning, "      ", width)


def as_markdown(program: str, found: list[tuple[Section, list[str]]]) -> str:
    """A page: a heading for the program, and a table for each section."""
    lines = [f"# Configuration of `python -m {program}`", ""]
    lines += [f"Made by `python -m {program} keys --markdown` from the classes that check a config.", ""]
    for section, names in found:
        lines += [f"## {section.title}", ""]
        for note in section.notes():
            lines += [note, ""]
        lines += ["| key | takes | default | meaning |", "|---|---|---|---|"]
        for key in section.entries():
            if key.name in names:
                cells = (
                    f"`{key.name}`",
                    key.type,
                    "must be given" if key.default is None else key.default,
                    key.meaning,
                )
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines) + "\n"


def _default(key: Key) -> str:
    return "must be given" if key.default is None else f"default {key.default}"


def _wrapped(text: str, indent: str, width: int | None) -> list[str]:
    if width is None:
        return [indent + text]
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
