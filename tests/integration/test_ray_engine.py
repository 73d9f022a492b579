"""Decode tasks that hang or die, under real Ray: the process is gone, the video is recorded, the next one comes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from preprocess import ray_engine
from preprocess.config import RayOptions
from preprocess.decode import DecodeOptions
from preprocess.engine import Work
from preprocess.extract import FramesSection, build_extractor
from preprocess.feed import Begun, DecodeOrder, Event, Opened, Started, decode_packs
from preprocess.plan import UnitVideo
from preprocess.shard import StreamJob
from preprocess.streams import stream_entry
from shared.errors import Failure

OPTIONS = RayOptions(cpus=2, object_store_mib=128)


def spin(order: DecodeOrder) -> Iterator[list[Event]]:
    """A decoder that holds the interpreter for ever, after noting which process it is."""
    yield [Started(None)]
    order.path.with_suffix(".pid").write_text(str(os.getpid()))
    while True:
        sum(range(10**9))  # one call into C: no other thread of the process can run


def die_once(order: DecodeOrder) -> Iterator[list[Event]]:
    """A decoder whose process dies the first time."""
    yield [Started(None)]
    mark = order.path.with_suffix(".died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield [Failure("second", "decode", "the second try got here")]


def die(order: DecodeOrder) -> Iterator[list[Event]]:
    yield [Started(None)]
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with ray_engine._Cluster(OPTIONS):
        yield


def short(order: DecodeOrder) -> Iterator[list[Event]]:
    """A decoder of a video of one block, which leaves a mark when it is done."""
    yield [Begun()]
    yield [Started(None), Opened(())]
    yield [Failure("read", "decode", "somebody read this")]
    order.path.with_suffix(".done").touch()


def start(decoder: object, path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60) -> ray_engine._Decoding:
    monkeypatch.setattr(ray_engine, "_DECODE_TASK", ray.remote(max_retries=0)(decoder))
    section = FramesSection(size=8)
    extractor = build_extractor(section, "cpu")
    jobs = {"s": StreamJob(stream_entry(extractor.spec, "npy", DecodeOptions()), extractor)}
    work = Work({"s": section}, {}, DecodeOptions(timeout_s=timeout_s), path.parent, "cpu")
    return ray_engine._Decoding(UnitVideo("v", path, ("s",)), jobs, work, OPTIONS)


def events_of(decoder: object, path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 60) -> list[Event]:
    return list(start(decoder, path, monkeypatch, timeout_s).events())


@pytest.mark.usefixtures("cluster")
class TestDecoding:
    def test_a_decoder_that_spins_is_killed_at_its_deadline(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events = events_of(spin, tmp_path / "a.mp4", monkeypatch, timeout_s=2)
        assert [event.reason for event in events if isinstance(event, Failure)] == ["timeout"]
        pid = int((tmp_path / "a.pid").read_text())
        deadline = time.monotonic() + 60
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the decoder is still there"
            time.sleep(0.1)
        after = events_of(decode_packs, tmp_path / "none.mp4", monkeypatch)
        assert [event.reason for event in after if isinstance(event, Failure)] == ["missing_file"]

    def test_a_decoder_that_dies_is_started_once_more(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        events = events_of(die_once, tmp_path / "b.mp4", monkeypatch)
        assert sum(isinstance(event, Started) for event in events) == 2
        assert [event.reason for event in events if isinstance(event, Failure)] == ["second"]

    def test_a_decoder_that_keeps_dying_fails_its_video(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        events = events_of(die, tmp_path / "c.mp4", monkeypatch)
        assert [event.reason for event in events if isinstance(event, Failure)] == ["decoder_died"]

    def test_a_short_video_is_decoded_to_its_end_before_anyone_reads_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        decoding = start(short, tmp_path / "d.mp4", monkeypatch)
        deadline = time.monotonic() + 60
        while not (tmp_path / "d.done").exists():
            assert time.monotonic() < deadline, "the decoder waits, and keeps its CPU from others"
            time.sleep(0.1)
        assert [event.reason for event in decoding.events() if isinstance(event, Failure)] == ["read"]


@pytest.mark.parametrize(("given", "decode_cpus", "actors", "ahead"), [
    (None, 1, 2, 8), (None, 1, 16, 1), (None, 2, 1, 8), (None, 0.5, 4, 8), (None, 1, 64, 1), (0, 1, 1, 0), (3, 1, 1, 3),
])  # fmt: skip
def test_decoders_are_as_many_as_the_cpus(given: int | None, decode_cpus: float, actors: int, ahead: int) -> None:
    options = RayOptions(videos_ahead=given, decode_cpus=decode_cpus)
    assert ray_engine._with_videos_ahead(options, actors, cpus=16).videos_ahead == ahead
