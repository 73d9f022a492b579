"""The commands of `python -m train`. Imports nothing heavy before a command runs."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shared.interrupts import held_interrupts

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Trains video-text models from a store that `python -m preprocess` made.",
)

_YAML = (".yaml", ".yml")


class Level(StrEnum):
    """What is ranked: single windows, or whole videos."""

    WINDOW = "window"
    VIDEO = "video"


class Task(StrEnum):
    """The keys of `train.tasks.TASKS`."""

    RETRIEVAL = "retrieval"
    LINEAR_PROBE = "linear_probe"


def _a_number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number of GiB; give one, as in 79.5")
    return value


Store = Annotated[Path | None, typer.Option(help="The store to look into; default: the one of the run.")]
Split = Annotated[str | None, typer.Option(help="The split; default: the validation split of the run.")]


@app.command()
def fit(
    config: Annotated[Path, typer.Argument(help="A YAML file; configs/train/ has examples.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, as in optim.lr=0.001; '~key' takes one out.")
    ] = None,
) -> None:
    """Train; goes on by itself where an earlier run stopped.

    For several processes: torchrun --standalone --nproc-per-node=N -m train fit CONFIG
    """
    with held_interrupts():
        from shared.config import load_config
        from train.config import FitConfig
        from train.loop import fit as run_fit
        from train.stopping import recorded_refusal

    with recorded_refusal(config, overrides or []):
        settings = load_config(config, FitConfig, overrides or [])
    run_fit(settings)


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(help="A YAML file; configs/train/ has examples.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, as in batch_size=512")] = None,
    ranks: Annotated[int, typer.Option(min=1, help="Training processes, all on one host.")] = 1,
    cores: Annotated[int | None, typer.Option(min=1, help="Of that host; default: of this one.")] = None,
    memory_gib: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1 << 20,
            callback=_a_number,
            help="Free memory of each rank's device; default: what is free here, which ranks on a CPU share.",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Train a few steps, in this process, for their time and memory; keeps and writes nothing."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text; sizes in bytes.")] = False,
) -> None:
    """Print what a run would read and hold, before anything runs: steps, memory, the largest queue, workers."""
    with held_interrupts():
        from shared.config import load_config
        from shared.fingerprint import canonical_json
        from train.config import FitConfig
        from train.negatives.config import GIB
        from train.plan import lines
        from train.plan import plan as make_plan

    found = make_plan(
        load_config(config, FitConfig, overrides or []),
        ranks=ranks,
        cores=cores,
        memory=None if memory_gib is None else int(memory_gib * GIB),
        measured=measure,
    )
    typer.echo(canonical_json(found).decode().rstrip() if as_json else lines(found))


@app.command()
def evaluate(
    target: Annotated[
        Path,
        typer.Argument(
            help="A run folder (its best checkpoint), a .pt file, the config of a run, or one of configs/evaluate/."
        ),
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, where the target is a config")] = None,
    store: Store = None,
    split: Split = None,
    set_name: Annotated[str | None, typer.Option("--set", help="The manifest set; default: that of the run.")] = None,
    level: Annotated[Level | None, typer.Option(help="Rank windows or videos.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: metrics.json in the run folder.")] = None,
) -> None:
    """Measure retrieval between captions and videos, or a linear probe, beside what chance would give."""
    with held_interrupts():
        from shared.errors import RequestError
        from train.evaluate import evaluate as run_evaluate
        from train.evaluate import table
        from train.tasks import is_task, run_settings, run_task

    if target.suffix in _YAML and is_task(target):
        if store or split or set_name or level or out:
            raise RequestError(f"{target} names its store, split and file itself: change them as key=value behind it")
        typer.echo(run_task(target, overrides or []))
        return
    if target.suffix in _YAML:
        checkpoint, settings = run_settings(target, overrides or [])
    elif overrides:
        raise RequestError(
            f"{overrides[0]!r}: overrides need a config file, but {target} is a checkpoint or run folder; give the "
            "run's config, which a run folder holds as config.yaml"
        )
    else:
        checkpoint, settings = target, {}
    if level:
        settings |= {"level": level.value}
    result = run_evaluate(checkpoint, store=store, set_name=set_name, split=split, settings=settings, out=out)
    typer.echo(table(result))


@app.command()
def compare(
    configs: Annotated[
        list[str],
        typer.Argument(help="Configs or folders of them, and key=value for all; configs/train/compare has nine."),
    ],
    train: Annotated[bool, typer.Option("--train/--no-train", help="Train what is not trained yet.")] = True,
    best: Annotated[
        bool, typer.Option("--best", help="Try best.pt of each run instead of its last checkpoint.")
    ] = False,
    split: Annotated[str | None, typer.Option(help="The split; default: the validation split of the configs.")] = None,
    level: Annotated[
        str | None, typer.Option(help="text_to_video.R@10=0.4; default: what all runs reached in validation.")
    ] = None,
    runs: Annotated[Path | None, typer.Option(help="A folder for all run folders, named as their configs.")] = None,
    out: Annotated[Path | None, typer.Option(help="The page; JSON goes beside it. Default: beside the runs.")] = None,
) -> None:
    """Train several configs, one after another, and compare them: a table, an HTML page, JSON."""
    with held_interrupts():
        from shared.errors import DamageFound
        from train.compare import compare as run_compare
        from train.compare_table import table as compare_table

    found, page = run_compare(configs, train=train, best=best, split=split, level=level, runs=runs, out=out)
    typer.echo(f"{compare_table(found)}\npage: {page}")
    if len(found.good) < len(found.runs):
        raise DamageFound(f"{len(found.runs) - len(found.good)} of {len(found.runs)} runs failed, listed above")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder, or a .pt file in one.")],
    store: Store = None,
    split: Split = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: report.html in the run folder.")] = None,
) -> None:
    """Write one HTML page: curves, metrics beside chance, what was found and what was missed."""
    with held_interrupts():
        from train.report import write_report

    typer.echo(f"report: {write_report(run, store=store, split=split, out=out)}")


@app.command()
def replay(
    dump: Annotated[Path, typer.Argument(help="A nonfinite-*.pt that a run left in its folder.")],
    store: Annotated[Path | None, typer.Option(help="The store, where it has been moved.")] = None,
) -> None:
    """Run a step again that failed, and say where the first number that is not finite arises. 5 if it fails again."""
    with held_interrupts():
        from shared.errors import RunFailed
        from train.replay import replay as run_replay

    found = run_replay(dump, store)
    typer.echo(found.lines())
    if found.first is not None:
        raise RunFailed(
            f"step {found.step + 1} fails again: the first number that is not finite is in the {found.first.name}: "
            f"{found.first.fault}. Look at what is named, lower optim.lr, or raise model.temperature.value (of a "
            "learned one minimum)"
        )
    typer.echo("every number is finite here: the step does not fail again")


@app.command()
def keys(
    section: Annotated[
        str, typer.Argument(metavar="[SECTION]", help="A dotted path: optim, model.text, loss.mil_nce; default: all.")
    ] = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/configuration.md has it.")] = False,
    task: Annotated[Task | None, typer.Option(help="The keys of a config of configs/evaluate/ instead.")] = None,
) -> None:
    """Print every key of a config: what it takes, its default, what it means."""
    with held_interrupts():
        from shared.keys import print_keys
        from train.config import FitConfig
        from train.tasks import TASKS

    print_keys("train", TASKS[task.value] if task else FitConfig, section, markdown)
