"""Units of work with a decoder and an extractor made here, so that every order of events can be tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import shard
from preprocess.decode import FrameBlock, Sampling, VideoInfo
from preprocess.decode.grid import Grid, KeyGrid, grid_of
from preprocess.extract.base import ExtractorSpec
from preprocess.feed import Ended, Event, Opened, Started
from preprocess.in_progress import NoteWriter
from preprocess.meter import Spent, Stopwatch
from preprocess.plan import Unit, UnitVideo
from preprocess.shard import FinishedUnit, StreamJob, extract_unit
from shared.errors import Failure
from shared.features import StreamReader
from shared.schema import Source, StreamEntry
from shared.shard_writer import ShardWriter
from shared.store import open_writer

SOURCE = Source(bytes=1, xxh3="ab")
CORRUPT = Failure("corrupt", "decode", "bad")


class MeanColour:
    """Rows are a frame's mean colour: what came in can be told from what came out."""

    def __init__(self, batch_size: int) -> None:
        self.spec = ExtractorSpec("features", (3,), "float32", Sampling(), batch_size, None, {})

    def prepare(self, frames_THWC: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(frames_THWC[0].copy()).float()

    def compute(self, clips: torch.Tensor) -> np.ndarray:
        assert len(clips) == self.spec.batch_size
        return clips.mean(dim=(1, 2)).numpy()


def frames(video: int, first: int, count: int) -> FrameBlock:
    index = np.arange(first, first + count)
    pixels = np.full((count, 2, 2, 3), 1 + video, np.uint8) + index[:, None, None, None].astype(np.uint8)
    return FrameBlock(index, index.astype(np.float64), np.zeros(count, bool), pixels)


def info(count: int) -> VideoInfo:
    return VideoInfo(2, 2, float(count), count, "h264", "mp4", "decord", 0.0, 0)


def grid() -> Grid | KeyGrid:
    return grid_of(Sampling(), first=0.0, end=0.0, tolerance=1e-6)


def good(video: int, count: int) -> list[Event]:
    half = count // 2
    blocks = [frames(video, 0, half), frames(video, half, count - half)]
    return [Started(SOURCE), Opened((grid(),)), *blocks, Ended(info(count))]


def do(folder: Path, scripts: Sequence[list[Event]], batch_size: int = 4) -> tuple[FinishedUnit, StreamReader]:
    entry = StreamEntry(
        kind="features", fingerprint="aa", identity={}, container="npy", dtype="float32", row_shape=(3,)
    )
    videos = tuple(UnitVideo(f"v{n}", Path(f"/v{n}"), ("s",)) for n in range(len(scripts)))
    unit = Unit(0, {"s": "00"}, videos)

    def feed(wanted: Sequence[UnitVideo]) -> Iterator[tuple[UnitVideo, Iterator[Event]]]:
        for video, script in zip(wanted, scripts, strict=True):
            yield video, iter(script)

    with open_writer(folder / "store") as writer:
        finished = extract_unit(unit, {"s": StreamJob(entry, MeanColour(batch_size))}, feed, writer.scratch)
        shard = finished.shards[0]
        writer.commit(shard.files, streams={"s": entry.model_copy(update={"shards": (shard.ref,)})})
        return finished, writer.store.stream("s")


def expected(video: int, count: int) -> np.ndarray:
    return np.repeat(1.0 + video + np.arange(count)[:, None], 3, axis=1)


def check(reader: StreamReader, counts: dict[int, int]) -> None:
    assert reader.video_ids == sorted(f"v{video}" for video in counts)
    for number, video_id in enumerate(reader.video_ids):
        video = int(video_id[1:])
        np.testing.assert_array_equal(reader.read(number), expected(video, counts[video]))
        starts = np.arange(counts[video])
        np.testing.assert_allclose(reader.spans(number), np.stack([starts, starts + 1], axis=1))


def test_rows_come_back_to_their_videos_across_batches(tmp_path: Path) -> None:
    counts = {0: 3, 1: 9, 2: 1, 3: 2}
    finished, reader = do(tmp_path, [good(video, count) for video, count in counts.items()])
    check(reader, counts)
    assert finished.spent.rows == 15
    assert [started.source for _, started in finished.found] == [SOURCE] * 4


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("sent", [0, 1, 5])
def test_a_video_that_fails_half_way_leaves_nothing_and_harms_no_other(
    tmp_path: Path, position: int, sent: int
) -> None:
    scripts = [good(video, 3) for video in range(3)]
    scripts[position] = [Started(SOURCE), Opened((grid(),)), frames(position, 0, sent), CORRUPT]
    _, reader = do(tmp_path, scripts)
    check(reader, {video: 3 for video in range(3) if video != position})
    assert reader.failures == [(f"v{position}", CORRUPT)]


def test_a_decoder_that_is_started_again_starts_its_video_again(tmp_path: Path) -> None:
    broken_off = [Started(SOURCE), Opened((grid(),)), frames(1, 0, 6)]
    _, reader = do(tmp_path, [good(0, 2), [*broken_off, *good(1, 7)], good(2, 3)])
    check(reader, {0: 2, 1: 7, 2: 3})


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_zero_rows_fail_their_video_only(tmp_path: Path, bad: int) -> None:
    script = good(1, 7)
    block = script[2] if bad < 3 else script[3]
    assert isinstance(block, FrameBlock)
    block.frames_THWC[bad if bad < 3 else bad - 3] = 0
    _, reader = do(tmp_path, [good(0, 3), script, good(2, 3)])
    check(reader, {0: 3, 2: 3})
    assert [failure.reason for _, failure in reader.failures] == ["all_zero"]


def test_a_file_without_a_frame_is_a_failure(tmp_path: Path) -> None:
    _, reader = do(tmp_path, [[Started(SOURCE), Opened((grid(),)), Ended(info(0))], good(1, 1)])
    assert [failure.reason for _, failure in reader.failures] == ["no_frames"]


def test_what_it_took_is_counted_and_noted_while_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[tuple[Spent, dict[str, int]]] = []
    monkeypatch.setattr(NoteWriter, "is_due", True)
    monkeypatch.setattr(
        NoteWriter, "write", lambda _, spent, shards: notes.append((spent, {n: s.rows for n, s in shards.items()}))
    )
    finished, _ = do(tmp_path, [good(0, 3), [Started(None), CORRUPT], good(1, 10)])
    assert (finished.spent.videos, finished.spent.rows, finished.spent.video_s) == (3, 13, 13)
    assert finished.spent.elapsed_s >= finished.spent.waiting_s + finished.spent.model_s + finished.spent.writing_s
    assert min(finished.spent.waiting_s, finished.spent.model_s, finished.spent.writing_s) > 0
    assert [shards.get("s") for _, shards in notes][-4:] == [7, 11, 11, None], "rows are told inside of a video, too"
    assert [spent.videos for spent, _ in notes][-4:] == [2, 2, 2, 3]
    assert notes[-1][0] == finished.spent


def test_every_second_is_of_one_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def slow(owner: type, name: str, seconds: float) -> None:
        real = getattr(owner, name)

        def timed(*arguments: object) -> object:
            now[0] += seconds
            return real(*arguments)

        monkeypatch.setattr(owner, name, timed)

    def slow_events(script: list[Event]) -> Iterator[Event]:
        for event in script:
            now[0] += 1000
            yield event

    monkeypatch.setattr(shard, "Stopwatch", lambda: Stopwatch(lambda: now[0]))
    slow(MeanColour, "prepare", 1)
    slow(MeanColour, "compute", 10)
    slow(ShardWriter, "append", 100)
    slow(ShardWriter, "finish", 200)
    finished, _ = do(tmp_path, [slow_events(good(0, 3)), slow_events(good(1, 2))])  # type: ignore[list-item]
    spent = finished.spent
    assert (spent.waiting_s, spent.model_s, spent.writing_s) == (10_000, 5 + 2 * 10, 3 * 100 + 200)
    assert spent.elapsed_s == now[0]


def test_a_unit_of_failures_is_a_shard_without_rows(tmp_path: Path) -> None:
    _, reader = do(tmp_path, [[Started(None), CORRUPT], [Started(None), CORRUPT]])
    assert (reader.video_ids, len(reader.failures)) == ([], 2)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from(["good", "fail", "again"]), st.integers(0, 9)),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 5),
)
def test_any_course_of_events(
    tmp_path_factory: pytest.TempPathFactory, course: list[tuple[int, str, int]], batch: int
) -> None:
    scripts, counts = [], {}
    for video, (count, fate, sent) in enumerate(course):
        begun: list[Event] = [Started(SOURCE), Opened((grid(),)), frames(video, 0, sent)]
        if fate == "fail":
            scripts.append([*begun, CORRUPT])
            continue
        scripts.append(good(video, count) if fate == "good" else [*begun, *good(video, count)])
        counts[video] = count
    _, reader = do(tmp_path_factory.mktemp("unit"), scripts, batch)
    check(reader, counts)
