"""Which streams a run works on: as the store has them, new, or being made again under a changed configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from preprocess.carry_over import keeps_rows, touched_videos, videos_of
from preprocess.config import PreprocessConfig
from preprocess.decode import RULES, DecodeOptions
from preprocess.extract import ExtractorSection, build_extractor
from preprocess.extract.base import ExtractorSpec
from preprocess.plan import Home, read_homes
from preprocess.shard import FinishedUnit
from shared.errors import RequestError
from shared.fingerprint import fingerprint
from shared.rewrite import shard_without
from shared.schema import Container, StreamEntry, stream_folder
from shared.shard_writer import FinishedFile
from shared.store import StoreWriter
from shared.stream_index import read_shard_index


def stream_entry(spec: ExtractorSpec, container: Container, decode: DecodeOptions) -> StreamEntry:
    """A stream's facts; its fingerprint covers everything that decides the bytes of its shards."""
    identity = {
        "extractor": spec.identity,
        "sampling": spec.sampling.model_dump(mode="json"),
        "decode": {"rules": RULES, "backend": decode.backend, "keep_partial": decode.keep_partial},
        "rows": [container, spec.dtype, list(spec.row_shape)],
    }
    return StreamEntry(
        kind=spec.kind,
        fingerprint=fingerprint(identity),
        identity=identity,
        container=container,
        dtype=spec.dtype,
        row_shape=spec.row_shape,
    )


@dataclass(frozen=True)
class Wanted:
    """One stream that a run is to bring up to date."""

    section: ExtractorSection
    spec: ExtractorSpec
    entry: StreamEntry


def wanted_stream(config: PreprocessConfig, section: ExtractorSection, device: str) -> Wanted:
    """What an extractor will be on `device`, which this process need not have.

    Raises EnvironmentLacking where weights are missing.
    """
    spec = build_extractor(section, device).spec
    return Wanted(section, spec, stream_entry(spec, config.container, config.decode))


def wanted_streams(config: PreprocessConfig, device: str, fitting: dict[str, int]) -> dict[str, Wanted]:
    """The streams of a config. fitting: clips per call instead of those of a fingerprint that is known not to fit."""
    streams = {}
    for name, section in config.streams.items():
        wanted = wanted_stream(config, section, device)
        while (size := fitting.get(wanted.entry.fingerprint, wanted.spec.batch_size)) < wanted.spec.batch_size:
            wanted = wanted_stream(config, section.model_copy(update={"batch_size": size}), device)
        streams[name] = wanted
    return streams


@dataclass(frozen=True)
class Change:
    """A stream whose configuration differs from the store's: the keys that differ, with what was and what is.

    keeps_rows: whether its rows are carried over, but for few.
    """

    stream: str
    differences: tuple[str, ...]
    keeps_rows: bool


class StreamBook:
    """The streams of one run, recorded under `streams` of the root, or under `pending` until they are whole."""

    def __init__(self, writer: StoreWriter, wanted: dict[str, StreamEntry], input_ids: Iterable[str]) -> None:
        self._writer = writer
        self.changes: list[Change] = []
        self._pending: set[str] = set()
        streams, pending = dict(writer.root.streams), dict(writer.root.pending)
        for name, entry in wanted.items():
            old = streams.get(name)
            if old is None or not old.shards or old.fingerprint == entry.fingerprint:
                streams[name] = old if old and old.fingerprint == entry.fingerprint else entry
                pending.pop(name, None)
                continue
            kept = keeps_rows(old, entry)
            self._refuse_loss(name, self._to_extract(name, old, entry), set(input_ids))
            self.changes.append(Change(name, tuple(_differences(old.identity, entry.identity)), kept))
            self._pending.add(name)
            if name not in pending or pending[name].fingerprint != entry.fingerprint:
                pending[name] = entry
        self._names = sorted(wanted)
        if (streams, pending) != (writer.root.streams, writer.root.pending):
            writer.commit([], streams=streams, pending=pending)

    def carry_over(self) -> int:
        """Take what a change of configuration does not touch into the streams that are being made again.

        Returns how many shards that were.
        """
        return sum(self._carry_over(change.stream) for change in self.changes if change.keeps_rows)

    def _carry_over(self, name: str) -> int:
        """Shard by shard, each committed: what a killed run has carried is found in the new stream and left there."""
        shards = 0
        old = self._writer.root.streams[name]
        path = self._writer.path
        # Asked once: every shard carried over is of videos that no other shard of the old stream has.
        there = read_homes(path, name, self._writer.root.pending[name]).keys()
        for ref in old.shards:
            entry, files = self._writer.root.pending[name], self._writer.root.files
            index = read_shard_index(path / stream_folder(old.kind, name), ref.name)
            touched = touched_videos(index, old, entry)
            if there & (videos_of(index) - touched):
                continue
            shard = shard_without(path, name, old, ref, touched, self._writer.scratch, files, becomes=entry)
            if shard is not None:
                carried = entry.model_copy(update={"shards": (*entry.shards, shard.ref)})
                self._writer.commit(shard.files, pending=self._writer.root.pending | {name: carried})
                shards += 1
        return shards

    @property
    def entries(self) -> dict[str, StreamEntry]:
        """The wanted streams as they stand now."""
        return {name: self._table(name)[name] for name in self._names}

    def homes(self) -> dict[str, dict[str, Home]]:
        return {name: read_homes(self._writer.path, name, entry) for name, entry in self.entries.items()}

    def commit(self, finished: FinishedUnit) -> None:
        """Add a unit's shards to the store, and take the videos that it did again out of their old shards."""
        files: list[FinishedFile] = []
        tables = {"streams": dict(self._writer.root.streams), "pending": dict(self._writer.root.pending)}
        for shard in finished.shards:
            table = tables["pending" if shard.stream in self._pending else "streams"]
            entry = table[shard.stream]
            ids = {video.video_id for video in finished.unit.videos if shard.stream in video.streams}
            refs = [shard.ref]
            files += shard.files
            homes = read_homes(self._writer.path, shard.stream, entry)
            outdated = {homes[video_id].shard for video_id in ids if video_id in homes}
            for ref in entry.shards:
                if ref.name not in outdated:
                    refs.append(ref)
                    continue
                where, files_now = self._writer.path, self._writer.root.files
                rest = shard_without(where, shard.stream, entry, ref, ids, self._writer.scratch, files_now)
                if rest is not None:
                    refs.append(rest.ref)
                    files += rest.files
            table[shard.stream] = entry.model_copy(update={"shards": tuple(sorted(refs, key=lambda ref: ref.name))})
        self._writer.commit(files, **tables)

    def promote(self) -> None:
        """Put streams that were made again in the place of the old ones; call it when every unit is done.

        Raises RequestError, and leaves the old ones, where that would lose rows of videos that cannot be read now.
        """
        if self._pending:
            for name in sorted(self._pending):
                self._refuse_unread(name)
            root = self._writer.root
            made = {name: root.pending[name] for name in self._pending}
            rest = {name: entry for name, entry in root.pending.items() if name not in made}
            self._writer.commit([], streams=root.streams | made, pending=rest)
            self._pending.clear()

    def _table(self, name: str) -> dict[str, StreamEntry]:
        return self._writer.root.pending if name in self._pending else self._writer.root.streams

    def _refuse_unread(self, name: str) -> None:
        old = read_homes(self._writer.path, name, self._writer.root.streams[name])
        new = read_homes(self._writer.path, name, self._writer.root.pending[name])
        unread = sorted(
            video_id
            for video_id, home in old.items()
            if home.failure_reason is None and new[video_id].failure_reason is not None and new[video_id].source is None
        )
        if unread:
            raise RequestError(
                f"stream {name!r} stays as it was: {len(unread)} of its videos cannot be read now, "
                f"such as {unread[0]!r}. "
                "What was made of the others is kept; make these readable and run the same command again"
            )

    def _to_extract(self, name: str, old: StreamEntry, new: StreamEntry) -> set[str]:
        """Videos of the old stream that the new one must extract again, failed ones too."""
        folder, found = self._writer.path / stream_folder(old.kind, name), set()
        for ref in old.shards:
            index = read_shard_index(folder, ref.name)
            found |= touched_videos(index, old, new) if keeps_rows(old, new) else videos_of(index)
        return found

    def _refuse_loss(self, name: str, videos: set[str], input_ids: set[str]) -> None:
        lost = sorted(videos - input_ids)
        if lost:
            raise RequestError(
                f"stream {name!r} is configured differently from the store's, and {len(lost)} of the store's videos "
                f"that would have to be decoded again (such as {lost[0]!r}) are not among the inputs: making it again "
                "would lose their rows. Give all inputs, or give the stream another name"
            )


def _differences(old: object, new: object, key: str = "") -> list[str]:
    """Where two identities differ, as `key: old -> new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name in sorted(old.keys() | new.keys())
            for line in _differences(old.get(name), new.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if old == new else [f"{key}: {old!r} -> {new!r}"]
