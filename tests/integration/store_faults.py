"""A writer that can be killed at any call that touches the disk; used by test_store_faults.py in forked processes.

Every write, fsync, rename, unlink, mkdir and rmdir that the store's code makes is wrapped and counts as events: one
before it, one after it, and for a write one in its middle, with half of the bytes written. What HDF5 writes in its own
code counts before and after each call of it.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from shared.captions import KeptCaptions, KeptTrack, write_caption_shard
from shared.errors import Failure
from shared.fingerprint import hash_bytes
from shared.manifest_writer import ManifestSetWriter
from shared.schema import Source, StreamEntry
from shared.shard_writer import FinishedShard, ShardWriter
from shared.store import ROOT, StoreWriter, open_writer

PLAIN = StreamEntry(kind="features", fingerprint="ab", identity={}, container="npy", dtype="float16", row_shape=(8,))
WIDE = StreamEntry(kind="features", fingerprint="cd", identity={}, container="h5", dtype="float32", row_shape=(4,))


def change_store(path: Path, roots: list[str]) -> None:
    """Bring the store from whatever root it has to the last: `roots` are the digests after each change, in order.

    With an empty list every change is made.
    """
    with open_writer(path) as writer:
        writer.remove_leftovers()
        digest = hash_bytes(writer.root.to_bytes())
        for change in CHANGES[roots.index(digest) if roots else 0 :]:
            change(writer)


def _first_shards(writer: StoreWriter) -> None:
    shard = _shard(writer, "plain", PLAIN, 0, seed=1)
    writer.commit(shard.files, streams={"plain": _with(PLAIN, shard)})


def _second_stream_and_unit(writer: StoreWriter) -> None:
    plain, wide = _shard(writer, "plain", PLAIN, 1, seed=2), _shard(writer, "wide", WIDE, 0, seed=3)
    entry = writer.root.streams["plain"]
    streams = {"plain": entry.model_copy(update={"shards": (*entry.shards, plain.ref)}), "wide": _with(WIDE, wide)}
    writer.commit([*plain.files, *wide.files], streams=streams)


def _captions(writer: StoreWriter) -> None:
    kept = [KeptCaptions("v00", "train", {}, (KeptTrack("a.vtt", b"WEBVTT\xff"),)), KeptCaptions("v01", None, {}, ())]
    done = write_caption_shard(writer.scratch, 0, kept)
    writer.commit(done.files, captions=(done.ref,))


def _set(writer: StoreWriter, text: str = "first") -> None:
    manifest = ManifestSetWriter(writer.scratch / "set")
    manifest.add_captions("v00", [0.0], [1.0], [text], [np.array([1, 2], np.int32)])
    manifest.add_window("train", "v00", 0.0, 2.0, 0, 2, [0])
    manifest.add_video("v00", "train", 3.0, 3)
    facts: dict[str, Any] = {"config": {}, "tokenizer": {"pad_id": 0}, "report": {}}
    writer.commit_set(*manifest.finish(name="words", stream="plain", stream_fingerprint="ab", **facts))


def _first_unit_again(writer: StoreWriter) -> None:
    shard = _shard(writer, "plain", PLAIN, 0, seed=9)
    entry = writer.root.streams["plain"]
    writer.commit(shard.files, streams=writer.root.streams | {"plain": _with(PLAIN, shard, *entry.shards[1:])})


def _other_set(writer: StoreWriter) -> None:
    _set(writer, text="second")


def _no_captions_and_one_stream(writer: StoreWriter) -> None:
    writer.commit([], captions=(), streams={"plain": writer.root.streams["plain"]})


CHANGES: tuple[Callable[[StoreWriter], None], ...] = (
    _first_shards, _second_stream_and_unit, _captions, _set, _first_unit_again, _other_set, _no_captions_and_one_stream
)  # fmt: skip


def _with(entry: StreamEntry, shard: FinishedShard, *others: Any) -> StreamEntry:
    return entry.model_copy(update={"shards": (shard.ref, *others)})


def _shard(writer: StoreWriter, name: str, entry: StreamEntry, unit: int, seed: int) -> FinishedShard:
    random = np.random.RandomState(seed)
    with ShardWriter(writer.scratch, name, entry, f"{seed:04x}", unit) as shard:
        for video in range(2):
            shard.append(random.randn(3, *entry.row_shape).astype(entry.dtype))
            spans = np.arange(6, dtype=np.float64).reshape(3, 2)
            spans[-1] += video / 4  # one video regular, one not
            shard.end_video(
                f"v{unit}{video}", source=Source(bytes=1, xxh3="ab"), duration=7.0, decoder="decord", partial=False,
                spans=spans, valid=np.zeros(3, np.int32),
            )  # fmt: skip
            shard.append(random.randn(2, *entry.row_shape).astype(entry.dtype))
            shard.fail_video(f"x{unit}{video}", Failure("corrupt", "decode", "-"), None)
        return shard.finish()


class Faults:
    """Counts and notes events, and kills the process at the `kill_at`-th (from 0); never with -1."""

    def __init__(self, kill_at: int = -1) -> None:
        self.kill_at = kill_at
        self.events: list[
            tuple[str, str, str, str]
        ] = []  # before, half or after; the call; the path; for a rename, from

    def event(self, when: str, call: str, path: str, source: str = "") -> None:
        if len(self.events) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.events.append((when, call, path, source))

    def install(self) -> None:
        """Wrap the calls, for the rest of the life of this process."""
        for call in ("unlink", "mkdir", "rmdir", "ftruncate", "fsync", "write", "replace", "rename"):
            setattr(os, call, self._around(getattr(os, call), call))
        for owner, call in (
            (h5py.Dataset, "__setitem__"), (h5py.Dataset, "resize"), (h5py.Dataset, "flush"),
            (h5py.Group, "create_dataset"), (h5py.File, "flush"), (h5py.File, "close"),
        ):  # fmt: skip
            setattr(owner, call, self._around(getattr(owner, call), call))
        io.open = self._open(io.open)  # type: ignore[assignment]

    def _around(self, real: Callable[..., Any], call: str) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            renames = call in ("replace", "rename")
            path, source = _path_of(arguments[renames], options), str(arguments[0]) if renames else ""
            self.event("before", call, path, source)
            result = real(*arguments, **options)
            self.event("after", call, path, source)
            return result

        return wrapped

    def _open(self, real: Callable[..., Any]) -> Callable[..., Any]:
        faults = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data).cast("B")
                faults.event("before", "file write", str(self.name))
                if faults.kill_at == len(faults.events):
                    super().write(view[: len(view) // 2])
                faults.event("half", "file write", str(self.name))
                written = super().write(view)
                faults.event("after", "file write", str(self.name))
                return written

            def truncate(self, size: int | None = None) -> int:
                faults.event("before", "truncate", str(self.name))
                result = super().truncate(size)
                faults.event("after", "truncate", str(self.name))
                return result

        def wrapped(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if "w" not in mode:
                return real(file, mode, *rest, **options)
            faults.event("before", "create", str(file))
            raw = io.BufferedWriter(Raw(str(file), "w"))
            faults.event("after", "create", str(file))
            if "b" in mode:
                return raw
            return io.TextIOWrapper(raw, encoding=options.get("encoding"), newline=options.get("newline"))

        return wrapped


def _path_of(target: Any, options: dict[str, Any]) -> str:
    if isinstance(target, int):
        return str(Path(f"/proc/self/fd/{target}").readlink())
    if isinstance(target, h5py.HLObject):
        return target.file.filename if target and target.file.mode != "r" else "not open for writing"
    if "dir_fd" in options and options["dir_fd"] is not None:
        return str(Path(f"/proc/self/fd/{options['dir_fd']}").readlink() / target)
    return str(target)


def in_fork(action: Callable[[], None]) -> int:
    """Run `action` in a forked process; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            action()
            code = 0
        finally:
            os._exit(code)  # no cleaning up: nothing of the parent's may be touched
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


__all__ = ["CHANGES", "ROOT", "Faults", "change_store", "in_fork"]
