"""`preprocess run`: inputs to a store. Every step can be killed; the next run goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from preprocess.captions.filters import CaptionFilter
from preprocess.captions.split import read_exclusions
from preprocess.captions.tokenise import load_tokenizer
from preprocess.config import PreprocessConfig
from preprocess.extract import FramesSection
from preprocess.extraction import Extraction, Progress
from preprocess.inputs import InputVideo, read_inputs
from preprocess.keep import KeepResult, caption_failures, keep_captions
from preprocess.manifests import BuiltSet, build_set
from preprocess.meter import Setting, Spent
from preprocess.names import how_to_make_again, lookalikes
from preprocess.record import RunRecord, sizes_that_fit
from preprocess.sources import SourceCache
from preprocess.streams import wanted_streams
from shared.edit.ids import listing
from shared.errors import Failure, RequestError
from shared.store import StoreWriter, open_store, open_writer, outdated_sets, refuse_inside_store


@dataclass(frozen=True)
class RunResult:
    """What a run did, and where every input stands after it.

    failures: (video id, stream or "captions", Failure) of every input that lacks something.
    copied_shards: taken over after a change of configuration.
    others: lines about what the store holds besides what inputs and config name; it stays.
    spent, wall_s: what extraction took; advice: its slowest stage and what helps, one line, empty without extraction.
    """

    inputs: int
    extracted: int
    copied_shards: int
    keep: KeepResult
    sets: tuple[BuiltSet, ...]
    failures: tuple[tuple[str, str, Failure], ...]
    others: tuple[str, ...]
    spent: Spent
    wall_s: float
    advice: str

    @property
    def did_nothing(self) -> bool:
        return not (
            self.extracted
            or self.copied_shards
            or self.keep.new
            or self.keep.changed
            or any(made.changed for made in self.sets)
        )


def run(
    config: PreprocessConfig, progress: Progress, limit: int | None = None, retry_failed: str | None = None
) -> RunResult:
    """Bring the store up to date with the inputs: captions kept, rows of every stream, manifest sets.

    limit: only the first inputs. retry_failed: try again what failed before for this reason, or for any (`all`).
    Raises the ClipmillErrors of its steps; what was committed before stays.
    """
    inputs = read_inputs(config.inputs, config.root)[:limit]
    check_sets(config)
    device = _device(config)
    wanted = wanted_streams(config, device, sizes_that_fit(config.store))
    with open_writer(config.store) as writer, SourceCache(config.store) as sources:
        for line in lookalikes(writer.root, config):
            progress.note(line)
        for path in writer.remove_leftovers():
            progress.note(f"removed {path}, left by a run that was stopped")
        kept = keep_captions(writer, inputs, config.captions, sources.source_of)
        if config.ray.scratch is not None:
            refuse_inside_store(config.ray.scratch.expanduser(), "shards in progress (ray.scratch=PATH)")
        record = RunRecord(writer.path, retry_failed, _setting(config, device))
        extraction = Extraction(config, device, inputs, writer, sources, record, progress)
        with record.kept_if_stopped():
            made = extraction.run(wanted, retry_failed)
        sets = tuple(build_set(writer, name, section) for name, section in sorted(config.sets.items()))
        failed = _failures(writer, config, inputs)
        others = _others(writer, config, () if limit else kept.others)
        result = RunResult(
            len(inputs),
            record.extracted,
            record.copied_shards,
            kept,
            sets,
            failed,
            others,
            record.spent,
            record.wall_s,
            record.advice,
        )
        if not result.did_nothing:
            failures = [failure for _, _, failure in failed]
            record.end(len(inputs), failures, {name: stream.spec for name, stream in made.items()})
    return result


def check_sets(config: PreprocessConfig) -> None:
    """Refuse sets that cannot be made before hours of extraction, not after.

    Raises RequestError for a stream that is not of features, and what loading tokenizers, filters and exclusion lists
    raises.
    """
    for name, section in config.sets.items():
        stream = config.streams.get(section.stream)
        if stream is None:
            known = ", ".join(sorted(config.streams))
            raise RequestError(f"sets.{name}.stream is {section.stream!r}, expected one of the streams: {known}")
        if isinstance(stream, FramesSection):
            raise RequestError(
                f"sets.{name}.stream: {section.stream!r} holds pixels; windows need a stream of features"
            )
        load_tokenizer(section.tokenizer)
        CaptionFilter(section.filters)
        read_exclusions(section.split.exclude)


def make_sets(config: PreprocessConfig, note: Callable[[str], None] = lambda _: None) -> tuple[BuiltSet, ...]:
    """`preprocess manifests`: the sets of a config, from what a finished store keeps. No media file is looked at.

    note: is told of names that look mistyped, before the work.

    Raises RequestError when the config names no set, StoreError when there is no store.
    """
    if not config.sets:
        raise RequestError("the config names no manifest set: add one under `sets`")
    open_store(config.store)
    with open_writer(config.store) as writer:
        for line in lookalikes(writer.root, config.model_copy(update={"streams": {}})):
            note(line)
        writer.remove_leftovers()
        return tuple(build_set(writer, name, section) for name, section in sorted(config.sets.items()))


def _setting(config: PreprocessConfig, device: str) -> Setting:
    cpus = config.ray.cpus if config.ray.address is None else None
    return Setting(config.engine, device, cpus, config.ray.scratch is not None)


def _device(config: PreprocessConfig) -> str:
    if config.device != "auto":
        return config.device
    return "cuda" if torch.cuda.is_available() else "cpu"


def _failures(
    writer: StoreWriter, config: PreprocessConfig, inputs: Sequence[InputVideo]
) -> tuple[tuple[str, str, Failure], ...]:
    ids = {video.video_id for video in inputs}
    found = []
    for name in config.streams:
        found += [
            (video_id, name, failure) for video_id, failure in writer.store.stream(name).failures if video_id in ids
        ]
    kept = caption_failures(writer.path, writer.root.captions)
    found += [(video_id, "captions", failure) for video_id, failure in kept if video_id in ids]
    for name in config.sets:
        found += set_failures(writer, name, ids)
    return tuple(sorted(set(found), key=lambda item: (item[0], item[1])))


def _others(writer: StoreWriter, config: PreprocessConfig, videos: Sequence[str]) -> tuple[str, ...]:
    """videos: those of the store that are not among the inputs."""
    found = []
    if videos:
        found.append(f"not among the inputs, and kept: {listing(videos)}; `preprocess remove` takes videos out")
    if streams := sorted(writer.root.streams.keys() - config.streams.keys()):
        found.append(f"streams that this config does not name are kept as they are: {listing(streams)}")
    outdated = outdated_sets(writer.root)
    if sets := sorted(writer.root.sets.keys() - config.sets.keys() - set(outdated)):
        found.append(f"sets that this config does not name are kept as they are: {listing(sets)}")
    for name in outdated:
        found.append(
            f"set {name!r}, which this config does not name, cannot be used any more: its stream "
            f"{writer.root.sets[name].stream!r} has changed. This makes it again as it was: "
            f"{how_to_make_again(writer.store, name)}"
        )
    return tuple(found)


def set_failures(writer: StoreWriter, name: str, ids: set[str]) -> list[tuple[str, str, Failure]]:
    """What a set could not use of the captions of these videos."""
    rows = writer.store.manifest_set(name).failures
    return [
        (row["video_id"], "captions", Failure(row["reason"], row["stage"], row["message"]))
        for row in rows
        if row["stage"] == "captions" and row["video_id"] in ids
    ]
