"""Which row is at a time: every answer against one that looks at each row."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from shared import row_times
from shared.row_times import RowTimes
from shared.shard_writer import ShardWriter, regular_spans
from shared.store import open_store, open_writer


def at(spans, time):
    """The rule, row by row: holds it, is nearest to it, has the nearest middle, comes first."""
    keys = [
        (not begin <= time < end, max(begin - time, time - end, 0.0), abs((begin + end) / 2 - time), row)
        for row, (begin, end) in enumerate(spans.tolist())
    ]
    return min(keys)[3]


def index_of(videos):
    """What an index says of videos, each (rows, start, step, length, end) or an array of spans."""
    facts = [
        video if isinstance(video, tuple) else (len(video), video[0, 0], np.nan, np.nan, video[:, 1].max())
        for video in videos
    ]
    rows, start, step, length, end = (np.array(column) for column in zip(*facts, strict=True))
    return SimpleNamespace(rows_V=rows, start_V=start, step_V=step, length_V=length, end_V=end)


def times_of(videos):
    return RowTimes(index_of(videos), lambda video: videos[video])


def spans_of(video):
    return regular_spans(*video) if isinstance(video, tuple) else video


def regular(draw):
    """An evenly spaced video whose last rows may be cut off; all numbers are exact."""
    rows, start = int(draw.integers(1, 13)), int(draw.integers(0, 24)) / 8
    step, length = int(draw.integers(1, 17)) / 8, int(draw.integers(1, 41)) / 8
    last = start + (rows - 1) * step
    end = max(start + length, last + int(draw.integers(1, 9)) / 8 * length)
    return rows, start, step, length, end


def irregular(draw, *, ordered):
    rows = int(draw.integers(1, 13))
    begin, length = draw.integers(0, 60, rows) / 8, draw.integers(0, 30, rows) / 8
    spans = np.stack([begin, begin + length], axis=1)
    if ordered:
        spans = np.stack([np.sort(begin), np.maximum(np.sort(begin), np.sort(begin + length))], axis=1)
    # Of rows with one and the same span, any will do.
    return np.unique(spans, axis=0) if ordered else draw.permutation(np.unique(spans, axis=0))


KINDS = {
    "regular": regular,
    "ordered": lambda draw: irregular(draw, ordered=True),
    "any order": lambda draw: irregular(draw, ordered=False),
    "mixed": lambda draw: regular(draw) if draw.random() < 0.5 else irregular(draw, ordered=draw.random() < 0.5),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_the_row_at_a_time_is_what_a_look_at_each_row_finds(kind, seed, monkeypatch):
    monkeypatch.setattr(row_times, "_AT_ONCE", 40)
    draw = np.random.default_rng(seed)
    videos = [KINDS[kind](draw) for _ in range(10)]
    video_N = draw.integers(0, len(videos), 600)
    # Sixteenths: on borders, on middles, half way between them, before the first row and behind the last.
    time_N = np.where(draw.random(600) < 0.7, draw.integers(-20, 500, 600) / 16, draw.uniform(-2, 30, 600))
    found_N = times_of(videos).rows_at(video_N, time_N)
    assert found_N.dtype == np.int64
    expected = [at(spans_of(videos[v]), t) for v, t in zip(video_N.tolist(), time_N.tolist(), strict=True)]
    assert found_N.tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_are_no_binary_fractions(seed):
    draw = np.random.default_rng(seed)
    videos = []
    for _ in range(8):
        rows, step, length = int(draw.integers(1, 400)), draw.uniform(0.03, 2), draw.uniform(0.03, 12)
        end = max(length, (rows - 1) * step + draw.uniform(0.01, 1) * length)
        videos.append((rows, 0.0, step, length, end))
    video_N, time_N = draw.integers(0, 8, 2000), draw.uniform(-1, 300, 2000)
    expected = [at(spans_of(videos[v]), t) for v, t in zip(video_N.tolist(), time_N.tolist(), strict=True)]
    assert times_of(videos).rows_at(video_N, time_N).tolist() == expected


def test_rules_one_by_one():
    second = (4, 0.0, 1.0, 1.0, 4.0)
    overlapping = (4, 0.0, 1.0, 3.0, 5.0)  # [0, 3) [1, 4) [2, 5) [3, 5)
    gaps = (3, 0.0, 2.0, 1.0, 5.0)  # [0, 1) [2, 3) [4, 5)
    picture = (1, 0.0, 0.0, 0.0, 0.0)
    scenes = np.array([[0.0, 100.0], [100.0, 101.0]])
    cases = [
        (second, 1.0, 1), (second, 0.999, 0), (second, -3.0, 0), (second, 99.0, 3),
        (overlapping, 2.5, 1), (overlapping, 3.25, 2), (overlapping, 4.5, 3), (overlapping, 5.0, 3),
        (gaps, 1.5, 0), (gaps, 1.6, 1), (gaps, 3.5, 1),
        (picture, 7.0, 0),
        # Its middle is nearer, but the other one holds it.
        (scenes, 95.0, 0), (scenes, 100.0, 1),
    ]  # fmt: skip
    for video, time, row in cases:
        assert times_of([video]).rows_at(np.array([0]), np.array([time])).tolist() == [row], (video, time)


def test_middles_are_those_of_spans():
    draw = np.random.default_rng(3)
    videos = [KINDS["mixed"](draw) for _ in range(20)]
    video_N = np.repeat(np.arange(20), 30)
    row_N = np.array([int(draw.integers(0, len(spans_of(videos[video])))) for video in video_N])
    expected = [spans_of(videos[v])[r].mean() for v, r in zip(video_N.tolist(), row_N.tolist(), strict=True)]
    np.testing.assert_array_equal(times_of(videos).middles(video_N, row_N), expected)


def test_irregular_spans_are_read_once_as_far_as_they_fit(monkeypatch):
    videos = [irregular(np.random.default_rng(seed), ordered=True) for seed in range(3)]
    read = []
    times = RowTimes(index_of(videos), lambda video: read.append(video) or videos[video])
    asked = np.array([0, 1, 2, 0, 1, 2]), np.linspace(0, 8, 6)
    for _ in range(3):
        times.rows_at(*asked)
        times.middles(asked[0], np.zeros(6, np.int64))
    assert read == [0, 1, 2]
    monkeypatch.setattr(row_times, "_REMEMBERED_BYTES", videos[0].nbytes + videos[1].nbytes)
    read.clear()
    times = RowTimes(index_of(videos), lambda video: read.append(video) or videos[video])
    first, again = times.rows_at(*asked), times.rows_at(*asked)
    assert read[:3] == [0, 1, 2]
    assert len(read) > 3
    assert first.tolist() == again.tolist()
    assert sum(spans.nbytes for spans in times._remembered.values()) <= row_times._REMEMBERED_BYTES


def test_a_stream_knows_the_times_of_its_rows(tmp_path, samples):
    uneven = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 5.0]])
    entry = samples.entry()
    with open_writer(tmp_path / "s") as writer:
        with ShardWriter(writer.scratch, "default", entry, "00", 0) as shard:
            for video, spans in (("a", samples.spans(4)), ("b", uneven)):
                shard.append(samples.rows(1, len(spans), entry))
                samples.end(shard, video, len(spans), spans=spans)
            made = shard.finish()
        writer.commit(made.files, streams={"default": entry.model_copy(update={"shards": (made.ref,)})})
    times = open_store(tmp_path / "s").stream("default").times
    assert times.rows_at(np.array([0, 1, 1, 0]), np.array([3.5, 3.5, 0.5, 1.0])).tolist() == [3, 2, 0, 1]
    assert times.middles(np.array([0, 1]), np.array([2, 2])).tolist() == [2.5, 3.5]
