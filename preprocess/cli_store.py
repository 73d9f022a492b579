"""Commands that change a store, or look into it, without extracting anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.markup import escape

from shared.edit.ids import listing
from shared.errors import RequestError
from shared.interrupts import held_interrupts
from shared.words import counted

if TYPE_CHECKING:
    from shared.edit.repair import Repaired

store_commands = typer.Typer()
_out = Console(highlight=False, soft_wrap=True)
_wide = Console(highlight=False, soft_wrap=True, width=100_000)
_err = Console(stderr=True, highlight=False, soft_wrap=True)

StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store.")]
TargetPath = Annotated[Path, typer.Argument(metavar="TARGET", help="The folder of the new store.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of videos; `--` before one that begins with a dash.")
]
IdsFile = Annotated[Path | None, typer.Option("--ids", metavar="FILE", help="A file of ids, one a line.")]


@store_commands.command()
def remove(
    store: StorePath,
    ids: Ids = None,
    ids_file: IdsFile = None,
    streams: Annotated[list[str] | None, typer.Option("--stream", metavar="NAME", help="A whole stream.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="NAME", help="A whole manifest set.")] = None,
) -> None:
    """Take videos out of a store, with their rows, captions and windows, and keep them out of later runs.

    Every id must be known, or nothing is done. The shards that hold them are written again without them (which needs
    room for a copy of these), so nothing but their ids is left when the command ends; `restore` lets them in again.
    Instead of ids: --stream and --set take out whole streams and sets; a run makes again what its config names.

    Example: python -m preprocess remove /data/store --ids takedown.txt
    """
    with held_interrupts():
        from preprocess.takedown import take_down
        from shared.edit.drop import drop_parts
        from shared.edit.ids import given_ids
        from shared.edit.target import existing_store

    if streams or sets:
        if ids or ids_file:
            raise RequestError("give either ids of videos, or --stream and --set: nothing was changed")
        with existing_store(store) as writer:
            drop_parts(writer, streams or (), sets or ())
        parts = [f"stream {name}" for name in streams or ()] + [f"set {name}" for name in sets or ()]
        _say(f"{', '.join(parts)} removed from {store}")
        return
    done = take_down(store, given_ids(ids, ids_file))
    _say(
        f"{counted(len(done.removed), 'video')} removed from {store}"
        if done.removed
        else "nothing to do: removed before"
    )
    for name in done.sets:
        _say(f"set {name}: edited; `python -m preprocess manifests CONFIG` makes it anew, with its report")
    _say_dropped(done.dropped)


@store_commands.command()
def restore(store: StorePath, ids: Ids = None, ids_file: IdsFile = None) -> None:
    """Let removed videos in again: the next `run` takes them for new inputs.

    Example: python -m preprocess restore /data/store -- -Xyz123
    """
    from shared.edit.ids import given_ids
    from shared.edit.remove import restore_videos
    from shared.edit.target import existing_store

    wanted = given_ids(ids, ids_file)
    with existing_store(store) as writer:
        restored = restore_videos(writer, wanted)
    _say(f"{counted(len(restored), 'video')} may come in again with the next run")


@store_commands.command()
def subset(
    store: StorePath,
    target: TargetPath,
    ids_file: IdsFile = None,
    split: Annotated[str | None, typer.Option(help="The videos of this split of a manifest set.")] = None,
    set_name: Annotated[str | None, typer.Option("--set", help="The set that --split is of.")] = None,
) -> None:
    """Make a new store of some videos of another. Nothing is extracted; the old store is not changed.

    Example: python -m preprocess subset /data/store /data/small --set default --split val
    """
    from shared.edit.ids import given_ids
    from shared.edit.subset import ids_of_split, subset_store
    from shared.store import open_store

    if (split is None) != (set_name is None) or (split is None) == (ids_file is None):
        raise RequestError("give either --ids FILE, or --set NAME and --split NAME")
    if split is not None and set_name is not None:
        wanted = ids_of_split(open_store(store), set_name, split)
    else:
        wanted = given_ids(None, ids_file)
    made = subset_store(store, target, wanted)
    _say(f"{target}: {counted(made.videos, 'video')} of {store}")
    _say_dropped(made.dropped)


@store_commands.command()
def merge(
    target: TargetPath,
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Two or more stores.")],
) -> None:
    """Make a new store of all videos of several stores with the same streams. Nothing is extracted.

    A video that several hold is taken once; if they made it of different files, or know other captions, all is refused
    with the list. Manifest sets that all of them have with the same settings are put together.

    Example: python -m preprocess merge /data/both /data/part1 /data/part2
    """
    from shared.edit.merge import merge_stores

    made = merge_stores(target, sources)
    without = f", and {made.removed} more that were removed" if made.removed else ""
    _say(f"{target}: {counted(made.videos, 'video')} of {len(sources)} stores{without}")
    _say_dropped(made.dropped)


@store_commands.command()
def compact(store: StorePath) -> None:
    """Put small shards together, as many additions and removals leave them. What readers get stays the same.

    Example: python -m preprocess compact /data/store
    """
    from shared.edit.compact import compact as compact_store
    from shared.edit.target import existing_store

    with existing_store(store) as writer:
        done = compact_store(writer, lambda text: _err.print(escape(text)))
    _say(f"{store}: {counted(done.before, 'shard')} before, {done.after} now")


@store_commands.command()
def repair(store: StorePath) -> None:
    """Make a damaged store whole: mend what can be mended to the bit, keep what is sound, drop the rest by name.

    Says what the next `run` extracts again. Exit code 1 when damage is left that it cannot deal with.

    Example: python -m preprocess repair /data/store
    """
    from shared.edit.repair import repair_store

    with _err.status("checking") as status:
        done = repair_store(store, lambda path: status.update(f"checking {escape(path)}"))
    _say_repaired(store, done)


@store_commands.command()
def inspect(
    store: StorePath,
    video: Annotated[
        str | None,
        typer.Argument(metavar="[VIDEO]", help="The id of a video; `--` before one that begins with a dash."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it as a page instead.")] = None,
    set_name: Annotated[str | None, typer.Option("--set", help="The manifest set; default: `default`.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many videos to list.")] = 100,
) -> None:
    """List the videos of a store, or draw one along its time: frames, rows, captions before and after, windows.

    Example: python -m preprocess inspect /data/store v42 --html v42.html
    """
    from preprocess.inspection.terminal import timeline, video_table
    from preprocess.inspection.view import choose_set, list_videos, view_video
    from shared.store import open_store

    opened = open_store(store)
    manifest = choose_set(opened, set_name)
    if video is None:
        if html is not None:
            raise RequestError("--html draws one video: name it, as in `preprocess inspect STORE VIDEO --html FILE`")
        lines, total, removed = list_videos(opened, manifest, limit)
        _draw(video_table(lines, list(opened.root.streams), manifest.name if manifest else ""))
        without = f" and {removed} that were removed" if removed else ""
        cut = f"; the first {limit} of all by id, --limit N shows more" if total + removed > limit else ""
        _say(f"{counted(total, 'video')}{without}{cut}")
        return
    if html is not None:
        from preprocess.inspection.page import write_page

        write_page(html, lambda: view_video(opened, video, manifest))
        _say(f"written: {html}")
    else:
        _draw(timeline(view_video(opened, video, manifest)))


def _say_repaired(store: Path, done: Repaired) -> None:
    for path in done.mended:
        _say(f"mended: {path}")
    for stream, ids in done.lost.items():
        _say(
            f"stream {stream}: rows of {counted(len(ids), 'video')} are lost: {listing(ids)}; "
            "the next run extracts them again, and the others of their shards whose inputs can be read"
        )
    for shard, count in done.unnamed:
        known = counted(count, "video")
        _say(f"{shard}: dropped with its index, which alone knew its {known}; the next run extracts them again")
    if done.captions:
        named = counted(len(done.captions), "video")
        _say(f"captions of {named}: the next run reads them again: {listing(done.captions)}")
    for name in done.caption_shards:
        _say(
            f"captions {name}: dropped; the next run reads them again. Takedowns in it are forgotten: remove them anew"
        )
    if done.buried:
        _say(f"taken for removed, having neither captions nor rows (see `restore`): {listing(done.buried)}")
    for name, what in done.sets:
        _say(f"set {name}: {what}; `python -m preprocess manifests CONFIG` makes it anew")
    for path in done.aside:
        _say(f"{path}: no file of clipmill's; moved to {store / 'set-aside' / path}")
    for path in done.deleted:
        _say(f"deleted: {path}, a run record that could not be mended")
    _say(f"{store} was whole" if done.did_nothing else f"{store} is whole")


def _draw(picture: RenderableType) -> None:
    """As wide as the terminal; as wide as it comes where there is none, so that programs find whole ids in a line."""
    (_out if _out.is_terminal else _wide).print(picture)


def _say(text: str) -> None:
    _out.print(escape(text))


def _say_dropped(dropped: Sequence[tuple[str, str]]) -> None:
    for name, why in dropped:
        _say(f"set {name}: left out, {why}; make it with `python -m preprocess manifests CONFIG`")
