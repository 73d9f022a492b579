"""The command line of preprocessing: thin, imports the work only when it is asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand

from preprocess.cli_adapt import AdaptCommand, adapt_command
from preprocess.cli_config import keys_command
from preprocess.cli_store import store_commands
from shared.config import load_config
from shared.edit.ids import listing
from shared.errors import DamageFound, Failure
from shared.interrupts import held_interrupts
from shared.store import open_store, outdated_sets
from shared.verify import verify_store
from shared.words import counted

if TYPE_CHECKING:
    from preprocess.config import PreprocessConfig
    from preprocess.manifests import BuiltSet
    from preprocess.run import RunResult

app = typer.Typer(
    help="Turn raw video and narration into a store of training-ready artifacts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(store_commands)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file; see configs/preprocess/.")]
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a store.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[key=value ...]", help="Override keys of the config.")]


_OF_SETS = ("sets.", "sets=", "store=")  # what overrides of `manifests` are about
_RETRY = "--retry-failed"
_REASON = re.compile("[a-z_]+")


class _RunCommand(TyperCommand):
    """`--retry-failed` alone means `--retry-failed=all`: typer has no options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[str] = []
        for arg in args:
            if given and given[-1] == _RETRY and _REASON.fullmatch(arg) and not Path(arg).exists():
                given[-1] = f"{_RETRY}={arg}"  # neither a config nor an override
            else:
                given.append(arg)
        return super().parse_args(ctx, [f"{_RETRY}=all" if arg == _RETRY else arg for arg in given])


app.command(name="adapt", cls=AdaptCommand)(adapt_command)
app.command(name="keys")(keys_command)


@app.command(name="run", cls=_RunCommand)
def run_command(
    config: ConfigPath,
    overrides: Overrides = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N inputs, for a first try.")] = None,
    retry_failed: Annotated[
        str | None,
        typer.Option(metavar="[=REASON]", help="Try failed inputs again: all, or those that failed for one reason."),
    ] = None,
) -> None:
    """Bring a store up to date with its inputs. Resumes by itself.

    Example: python -m preprocess run configs/preprocess/corpus.yaml store=/data/store
    """
    loaded = _load(config, overrides)  # a mistake in it is told before the seconds that these imports take
    with held_interrupts():
        from preprocess.display import shown_progress
        from preprocess.run import run

    with shown_progress(err) as progress:
        result = run(loaded, progress, limit, retry_failed)
    _summary(result)


@app.command()
def manifests(config: ConfigPath, overrides: Overrides = None) -> None:
    """Make the manifest sets of a store again from the captions it keeps: no video is read.

    Example: python -m preprocess manifests configs/preprocess/corpus.yaml sets.default.windows.min_seconds=8
    """
    loaded = _load(config, overrides)
    with held_interrupts():
        from preprocess.run import make_sets

    for override in overrides or ():
        if not override.startswith(_OF_SETS):
            err.print(escape(f"{override} changes nothing here: `preprocess run` reads inputs, captions and videos"))
    for made in make_sets(loaded, lambda line: err.print(escape(line))):
        _tell_set(made)


@app.command()
def verify(store: StorePath) -> None:
    """Check every file of a store. Exit code 1, and the place of each damage, when something is wrong."""
    with err.status("checking") as status:
        found = verify_store(store, lambda path: status.update(f"checking {escape(path)}"))
    for damage in found:
        out.print(escape(f"{store / damage.path}: {damage.what}"))
    if found:
        raise DamageFound(f"{counted(len(found), 'damage')} found in {store}")
    root = open_store(store).root
    size = sum(entry.bytes for entry in root.files.values())
    out.print(f"{store} is whole: {counted(len(root.files), 'file')}, {size} bytes")


@app.command()
def report(
    store: StorePath,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show what a run is writing, until it ends; Ctrl-C ends only the showing.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks of --follow.")] = 2.0,
    set_name: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="How this set came about: counts with examples.")
    ] = None,
) -> None:
    """Say what a store holds, how its last runs went, and what a run that is going on is writing.

    Example: python -m preprocess report /data/store --set default
    """
    from preprocess.report import account
    from preprocess.report import follow as follow_run

    if set_name is not None:
        from preprocess.set_account import set_lines

        for line in set_lines(open_store(store).manifest_set(set_name).info, examples=True):
            out.print(escape(line))
        return
    if follow and not follow_run(store, out, every):
        return
    for line in account(store):
        out.print(escape(line))


@app.command()
def failures(store: StorePath) -> None:
    """List the inputs that have no rows, by reason."""
    from preprocess.keep import caption_failures

    opened = open_store(store)
    total = 0
    for name in opened.root.streams:
        found = opened.stream(name).failures
        total += len(found)
        for reason, count in sorted(Counter(failure.reason for _, failure in found).items()):
            out.print(f"stream {name}: {count} {reason}")
            for video_id, failure in found:
                if failure.reason == reason:
                    out.print(escape(f"  {video_id}: {failure.stage}: {failure.message}"))
    told = set()
    outdated = outdated_sets(opened.root)
    for name in outdated:
        out.print(escape(f"set {name} is out of date, its stream has changed: what it left out is not told"))
    for name in sorted(opened.root.sets.keys() - set(outdated)):
        for row in opened.manifest_set(name).failures:
            if row["stage"] == "captions":
                total += 1
                told.add(row["video_id"])
                out.print(escape(f"set {name}: {row['video_id']}: {row['reason']}: {row['message']}"))
    for video_id, failure in caption_failures(opened.path, opened.root.captions):
        if video_id not in told:
            total += 1
            out.print(escape(f"captions: {video_id}: {failure.reason}: {failure.message}"))
    if total == 0:
        out.print("no input has failed")


def _load(config: Path, overrides: list[str] | None) -> PreprocessConfig:
    with held_interrupts():
        from preprocess.config import PreprocessConfig

    return load_config(config, PreprocessConfig, overrides or ())


def _tell_failures(failures: Sequence[tuple[str, str, Failure]]) -> None:
    """A table on a terminal; off one a line each, of which nothing is cut."""
    if not out.is_terminal:
        for video_id, where, failure in failures:
            out.print(escape(f"{video_id}: {where}: {failure.reason}: {failure.message}"))
        return
    table = Table("video", "where", "reason", "message")
    for video_id, where, failure in failures:
        table.add_row(escape(video_id), where, failure.reason, escape(failure.message))
    out.print(table)


def _tell_set(made: BuiltSet) -> None:
    from preprocess.set_account import set_lines

    out.print(escape(made.describe()))
    for line in set_lines(made.info) if made.changed else ():
        out.print(escape(f"  {line}"))


def _summary(result: RunResult) -> None:
    """Say where every input stands; failures of inputs end the process with 1."""
    failed = {video_id for video_id, where, _ in result.failures if where != "captions"}
    mute = {video_id for video_id, where, _ in result.failures if where == "captions"} - failed
    if result.failures:
        places: dict[tuple[str, Failure], list[str]] = {}
        for video_id, where, failure in result.failures:
            places.setdefault((video_id, failure), []).append(where)
        _tell_failures([(video_id, ", ".join(where), failure) for (video_id, failure), where in places.items()])
    for made in result.sets:
        _tell_set(made)
    if result.advice:
        out.print(result.advice)
    state = "nothing to do" if result.did_nothing else f"{result.extracted} worked on in this run"
    removed = len(result.keep.removed)
    taken_down = f", {removed} removed" if removed else ""
    done = result.inputs - len(failed) - removed
    without = f" ({len(mute)} without their captions)" if mute else ""
    out.print(f"{counted(result.inputs, 'input')}: {done} done{without}, {len(failed)} failed{taken_down}; {state}")
    for line in result.others:
        out.print(escape(line))
    if removed:
        out.print(
            f"removed before and not extracted again: {escape(listing(result.keep.removed))}; "
            "`preprocess restore` lets them in"
        )
    if result.failures:
        counts = [f"{len(failed)} of {counted(result.inputs, 'input')} failed"] if failed else []
        counts += [f"the captions of {len(mute)} cannot be used"] if mute else []
        raise DamageFound(f"{', '.join(counts)}; they are listed above and by `preprocess failures`")
