"""`preprocess adapt`: a data set as published to an input manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

from shared.errors import DamageFound
from shared.store import refuse_inside_store

if TYPE_CHECKING:
    from preprocess.adapters.adapt import AdaptResult

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


class AdaptCommand(TyperCommand):
    """Lists the data sets below the help; they are imported only for that."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from preprocess.adapters import ADAPTERS

        del ctx
        with formatter.section("Data sets"):
            formatter.write_dl([(name, adapter.about) for name, adapter in ADAPTERS.items()])
        with formatter.section("An example of each"):
            for adapter in ADAPTERS.values():
                formatter.write(f"  python -m preprocess adapt {adapter.example}\n")


def adapt_command(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="One of the data sets below.")],
    index: Annotated[list[Path], typer.Argument(metavar="INDEX...", help="Its index files as published.")],
    media: Annotated[
        Path | None, typer.Option(help="The folder below which its media lie; default: the folder of the index.")
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option("--out", help="The manifest to write; default: videos.csv in the folder of the media."),
    ] = None,
    captions: Annotated[
        Path | None, typer.Option(help="HowTo100M: caption.json, raw_caption.json, or a folder of CSV files.")
    ] = None,
    fold: Annotated[
        int | None, typer.Option(min=1, max=3, help="HMDB-51, UCF-101: which split is `split`; default 1.")
    ] = None,
) -> None:
    """Write the input manifest of a data set as published, and list what is missing.

    Beside NAME.csv stands NAME.missing.csv with every row of the index (or, of a plain folder, every file of media and
    captions) that is not in the manifest, and why; the exit code is 1 when there are any, though the manifest is whole.
    Nothing is downloaded.
    """
    from preprocess.adapters.adapt import adapt

    if manifest is not None:
        refuse_inside_store(manifest, "the manifest (--out NAME.csv)")
    _tell(adapt(dataset, index, media, manifest, captions, fold))


def _tell(result: AdaptResult) -> None:
    from preprocess.adapters.items import ROWS

    splits = ", ".join(f"{count} {name or 'without a split'}" for name, count in sorted(result.splits.items()))
    out.print(escape(f"{result.manifest}: {result.videos} videos ({splits or 'none'})"), end="")
    out.print(f", {result.with_captions} with captions")
    if result.several:
        out.print(f"{result.several} names have several files; the one with the commonest extension is taken")
    if result.root is not None:
        out.print(escape(f"media lie outside of the manifest's folder: give the config root={result.root}"))
    if result.advice:
        out.print(result.advice)
    for kind, count in result.kinds.items():
        left = result.kinds_left[kind]
        out.print(f"{count} {kind}: {count - left} in the manifest, {left} left out")
    for reason, count in sorted(result.left_out.items()):
        out.print(f"  {reason}: {count}")
    left_out = result.left_out.total()
    if left_out:
        what = "rows" if set(result.kinds) == {ROWS} else "files"
        err.print(escape(f"left out: {left_out} of {result.rows} {what}; {result.missing} lists them with the reasons"))
        raise typer.Exit(DamageFound.exit_code)
