"""`preprocess keys`: what a config may say."""

from __future__ import annotations

from typing import Annotated

import typer

from shared.interrupts import held_interrupts


def keys_command(
    section: Annotated[
        str, typer.Argument(metavar="[SECTION]", help="A dotted path: decode, streams.timm, sets.clean; default: all.")
    ] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/configuration.md has it.")] = False,
) -> None:
    """Print every key of a config: what it takes, its default, what it means.

    Example: python -m preprocess keys streams.timm
    """
    with held_interrupts():
        from preprocess.config import PreprocessConfig
        from shared.keys import print_keys

    print_keys("preprocess", PreprocessConfig, section, markdown)
