"""`train evaluate`: a checkpoint on a split of a store, to metrics.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shared.config_schema import UNKNOWN_NAME
from shared.errors import InputFileError, RequestError, StoreError
from shared.explain import first_fault
from shared.fingerprint import canonical_json
from shared.store import Store, open_store
from train.checkpoint import differences, load_checkpoint, resolve_checkpoint
from train.checkpoint_content import check_content, content_fits
from train.config import FitConfig
from train.data import WindowData
from train.distributed import World, distributed_world
from train.embedded import EmbeddedSplit, embed_split
from train.model import TwoTower, build_model
from train.outputs import check_output, write_output
from train.retrieval import EvaluateConfig, measure
from train.seen import in_words, input_dims, streams

METRICS_FILE = "metrics.json"


@dataclass(frozen=True)
class Subject:
    """A trained model and the split that it is to be tried on. checkpoint: the file; step: steps it was trained for."""

    checkpoint: Path
    step: int
    config: FitConfig
    store: Store
    model: TwoTower
    data: WindowData


def evaluate(
    target: Path,
    *,
    store: Path | None = None,
    set_name: str | None = None,
    split: str | None = None,
    settings: dict[str, Any] | None = None,
    out: Path | None = None,
) -> dict[str, Any]:
    """Measure a checkpoint (a .pt file, or a run folder: its best one) and write the result.

    store, set_name, split: None for those of the run; settings: EvaluateConfig fields that differ from the run's.
    out: a file, None for metrics.json in the run folder. The result is the same at any world size.
    Returns what is written. Raises RequestError for what does not fit together, DamageFound for what was changed.
    """
    path = out or run_folder(resolve_checkpoint(target)) / METRICS_FILE
    check_output(path)
    with distributed_world("auto") as world:
        subject = open_subject(target, world, store=store, set_name=set_name, split=split)
        config = EvaluateConfig.model_validate(subject.config.evaluate.model_dump() | (settings or {}))
        embedded = embed_split(subject.model, subject.data, world, config.batch_size, config.captions)
        result = measured(subject, embedded, config)
        if world.is_main:
            write_output(path, canonical_json(result))
    return result


def measured(subject: Subject, embedded: EmbeddedSplit, config: EvaluateConfig) -> dict[str, Any]:
    """The metrics of a split with what they are of, as plain JSON values."""
    data = subject.data
    return {
        "split": data.split,
        "set": data.manifest.name,
        "windows": len(data),
        "videos": len(set(data.windows.video_W.tolist())),
        "checkpoint": subject.checkpoint.name,
        "step": subject.step,
        "data": data.identity,
        **measure(embedded, data, config, normalise=subject.model.normalise),
    }


def open_subject(target: Path, world: World, *, store: Path | None, set_name: str | None, split: str | None) -> Subject:
    """Load a checkpoint and the split it is to be tried on; their features and tokens must be of one kind."""
    path = resolve_checkpoint(target)
    content = load_checkpoint(path)
    config = config_of(content, path)
    opened = open_store(store) if store else _store_of_run(config, path)
    wanted = split or config.val_split
    if wanted is None:
        raise RequestError(f"{path} was trained without a validation split: say which one with --split")
    data = WindowData(
        opened, set_name or config.set, wanted, config=config.data, embeddings=config.model.reads_embeddings
    )
    with content_fits(path):
        check_same_inputs(content, data, path)
        dims = input_dims(content)
    # Not in there: what a head of somebody's own raises is no fault of the checkpoint.
    model = build_model(config.model, input_dim=dims, tokens=data.tokens)
    with content_fits(path):
        model.load_state_dict(content["model"])
    return Subject(path, int(content["order"]["step"]), config, opened, model.to(world.device).eval(), data)


def _store_of_run(config: FitConfig, checkpoint: Path) -> Store:
    try:
        return open_store(config.store)
    except StoreError as error:
        if config.store.is_absolute():
            raise
        raise StoreError(
            f"{error}. {checkpoint} was trained on store={config.store}, a path from the folder that `fit` was typed "
            f"in; here it is taken from {Path.cwd()}: say where the store lies with --store PATH, or go to that folder"
        ) from None


def config_of(content: dict[str, Any], path: Path) -> FitConfig:
    """The configuration in a checkpoint. Raises InputFileError where there is none that this version takes."""
    check_content(content, path)
    try:
        return FitConfig.model_validate(content["config"])
    except ValidationError as error:
        raise InputFileError(
            f"the configuration in {path} is not one that this version takes: {first_fault(error)}; {_remedy(error)}"
        ) from None


def _remedy(error: ValidationError) -> str:
    if error.errors()[0]["type"] in (UNKNOWN_NAME, "union_tag_invalid", "literal_error"):
        return "use the code that it was trained with, which has it"
    return "use the version that it was trained with, or train again"


def run_folder(checkpoint: Path) -> Path:
    """The run folder that a checkpoint file stands in; the file's own folder where it was moved elsewhere."""
    folder = checkpoint.resolve().parent
    return folder.parent if folder.name == "checkpoints" else folder


def check_same_inputs(content: dict[str, Any], data: WindowData, path: Path) -> None:
    """Raise RequestError unless a checkpoint was trained on rows and tokens of the kind that `data` has."""
    stream = data.stream
    before, now = streams(content["stream"], {"fingerprint": stream.fingerprint, "identity": stream.entry.identity})
    # Where one has fewer streams, the channels say so.
    further = zip(content.get("further_streams", []), data.further_kinds, strict=False)
    for place, (one, other) in enumerate(further, start=2):
        old, new = streams(one, other)
        before, now = before | {f"stream {place}": old}, now | {f"stream {place}": new}
    before["channels"], now["channels"] = list(input_dims(content)), list(data.input_dims)
    if content.get("embeddings") is None:
        before, now = before | {"tokenizer": content["tokenizer"]}, now | {"tokenizer": data.manifest.info.tokenizer}
    else:
        # A tower that reads them reads no token.
        before, now = before | {"embeddings": content["embeddings"]}, now | {"embeddings": data.embedding_kind}
    # Where captions are cut changes no id, and data sets are published with another limit for evaluation.
    changed = [line for line in differences(before, now) if not line.startswith("tokenizer.max_length:")]
    if changed:
        raise RequestError(
            f"checkpoint {path} was trained on other features or tokens (left) than set {data.manifest.name!r} of "
            f"{data.opened.store} has (right):\n  "
            + "\n  ".join(in_words(changed))
            + "\nuse a store that was made with the same extractor, tokenizer and text encoder settings"
        )


def table(result: dict[str, Any]) -> str:
    """The metrics for a terminal, each beside chance; recalls in percent."""
    lines = [
        f"{result['windows']} windows of {result['videos']} videos, split {result['split']}, level {result['level']}, "
        f"{result['checkpoint']} after {result['step']} steps"
    ]
    lines += _both_ways(result, "")
    if "dual_softmax" in result:
        lines += _both_ways(result["dual_softmax"], f", dual softmax at {result['dual_softmax']['temperature']:g}")
    return "\n".join(lines)


def _both_ways(found: dict[str, Any], how: str) -> list[str]:
    both = (("text to video" + how, found["text_to_video"]), ("video to text" + how, found["video_to_text"]))
    return [line for title, direction in both for line in _direction_lines(title, direction)]


def _direction_lines(title: str, found: dict[str, Any]) -> list[str]:
    chance = found["chance"]
    lines = [f"{title}: {found['queries']} queries, {found['items']} candidates"]
    for name in [name for name in found if name.startswith("R@")]:
        level = chance[name]
        lines.append(
            f"  {name:<5} {found[name]:7.2%}{_interval(found, name, '.2%')}   chance {level['level']:.2%} "
            f"[{level['low']:.2%}, {level['high']:.2%}] at {chance['confidence']:.0%}"
        )
    for name in ("MedR", "MeanR"):
        lines.append(f"  {name:<5} {found[name]:7.1f}{_interval(found, name, '.1f')}   chance {chance[name]:.1f}")
    return lines


def _interval(found: dict[str, Any], name: str, form: str) -> str:
    if name not in found["interval"]:
        return ""
    low, high = found["interval"][name]
    return f" [{low:{form}}, {high:{form}}]"
