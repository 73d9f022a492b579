"""Shards: whole videos only, bad rows refused, spans by rule or by array, the same bytes every time."""

# ruff: noqa: PT012  (what is refused must be refused inside an open writer)

from __future__ import annotations

import os

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.containers import map_rows
from shared.errors import Failure, StoppedEarly
from shared.schema import FailureRecord, Source
from shared.shard_writer import BadRowsError, ShardWriter, checksum_rows, npy_bytes, regular_spans
from shared.stream_index import read_shard_index

BOTH = pytest.mark.parametrize("container", ["npy", "h5"])


def files_of(shard):
    return {file.path: file.scratch.read_bytes() for file in shard.files}


def index_of(shard, tmp_path):
    """The index of a finished shard, read as a reader would."""
    source = next(file for file in shard.files if file.path.endswith(".json"))
    target = tmp_path / "read" / f"{shard.ref.name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(source.scratch.read_bytes())
    return read_shard_index(target.parent, shard.ref.name)


@BOTH
def test_rows_index_and_root_entry_agree(tmp_path, samples, container):
    shard = samples.shard(tmp_path / "s", samples.entry(container), unit=3)
    index = index_of(shard, tmp_path)
    assert (shard.ref.rows, shard.ref.videos, shard.ref.failed) == (5 + 6 + 7, 3, 1)
    assert shard.ref.name.startswith("00003-")
    assert [(v.id, v.first_row, v.rows) for v in index.videos] == [("v30", 0, 5), ("v31", 5, 6), ("v32", 11, 7)]
    assert index.failed == (FailureRecord(id="x3", **vars(samples.failure)),)
    payload = next(file for file in shard.files if file.path.endswith(container))
    rows = map_rows(container, payload.scratch, (18, 8), "float16")
    np.testing.assert_array_equal(rows[5:11], samples.rows(31, 6))
    assert index.checksums == checksum_rows(rows)
    for file in shard.files:
        data = file.scratch.read_bytes()
        assert (file.entry.bytes, file.entry.xxh3) == (len(data), xxhash.xxh3_128_hexdigest(data))


@BOTH
def test_same_content_same_bytes_and_names(tmp_path, samples, container):
    first = files_of(samples.shard(tmp_path / "a", samples.entry(container)))
    assert first == files_of(samples.shard(tmp_path / "b", samples.entry(container)))


@BOTH
def test_another_bit_another_name(tmp_path, samples, container):
    entry = samples.entry(container)
    names = {samples.shard(tmp_path / "a", entry).ref.name, samples.shard(tmp_path / "b", entry, videos=2).ref.name}
    changed = entry.model_copy(update={"fingerprint": "cd"})
    assert len(names | {samples.shard(tmp_path / "c", changed).ref.name}) == 3


@BOTH
def test_pieces_and_failed_videos_between_leave_no_trace(tmp_path, samples, container):
    entry = samples.entry(container)
    plain = samples.shard(tmp_path / "a", entry)
    with ShardWriter(tmp_path / "b", "default", entry, "0000", 0) as writer:
        for video in range(3):
            rows = samples.rows(video, 5 + video)
            writer.append(samples.rows(99, 4))
            writer.drop_open_rows()
            for row in rows:
                writer.append(row[None])
            samples.end(writer, f"v0{video}", len(rows))
            if video == 1:
                writer.append(samples.rows(98, 7))
                writer.fail_video("x0", samples.failure, None)
        again = writer.finish()
    assert files_of(again) == files_of(plain)


def test_a_failed_video_keeps_what_was_known_of_it(tmp_path, samples):
    source = Source(bytes=7, xxh3="cd")
    with ShardWriter(tmp_path / "s", "default", samples.entry(), "01", 0) as writer:
        writer.fail_video("b", Failure("timeout", "decode", "60 s"), source)
        writer.keep_failure(FailureRecord(id="a", **vars(samples.failure)))
        shard = writer.finish()
    index = index_of(shard, tmp_path)
    assert [(r.id, r.reason, r.source) for r in index.failed] == [("a", "corrupt", None), ("b", "timeout", source)]
    assert (shard.ref.rows, shard.ref.videos, shard.ref.failed) == (0, 0, 2)


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [(np.nan, "non_finite", "1 of 4"), (-np.inf, "non_finite", "1 of 4"), (0, "all_zero", "1 of 4")],
)
def test_bad_rows_are_refused_with_the_failure_to_record(tmp_path, samples, value, reason, message):
    rows = samples.rows(0, 4)
    rows[2, ...] = value
    with ShardWriter(tmp_path / "s", "default", samples.entry(), "01", 0) as writer:
        with pytest.raises(BadRowsError) as caught:
            writer.append(rows)
        failure = caught.value.failure
        assert (failure.reason, failure.stage) == (reason, "extract")
        assert message in failure.message
        writer.fail_video("v", failure, None)
        assert writer.finish().ref.rows == 0


def test_one_zero_value_is_no_bad_row_and_black_frames_are_frames(tmp_path, samples):
    rows = samples.rows(0, 4)
    rows[2, 1:] = 0
    with ShardWriter(tmp_path / "a", "default", samples.entry(), "01", 0) as writer:
        writer.append(rows)
        samples.end(writer, "v", 4)
        writer.finish()
    frames = samples.entry(kind="frames", dtype="uint8", row_shape=(2, 2, 3))
    with ShardWriter(tmp_path / "b", "thumbs", frames, "01", 0) as writer:
        writer.append(np.zeros((4, 2, 2, 3), np.uint8))
        samples.end(writer, "v", 4)
        assert writer.finish().files[0].path.startswith("frames/thumbs/")


def test_no_rows_are_no_bad_rows(tmp_path, samples):
    with ShardWriter(tmp_path / "s", "default", samples.entry(), "01", 0) as writer:
        writer.append(samples.rows(0, 0))
        writer.append(samples.rows(0, 2))
        samples.end(writer, "v", 2)
        assert writer.finish().ref.rows == 2


@pytest.mark.parametrize(
    "rows", [np.ones((2, 4), np.float16), np.ones((2, 8), np.float32), np.ones((2, 8, 1), np.float16)]
)
def test_rows_of_another_stream_are_a_bug(tmp_path, samples, rows):
    with (
        pytest.raises(ValueError, match=r"stream default holds float16\(8,\)"),
        ShardWriter(tmp_path / "s", "default", samples.entry(), "01", 0) as writer,
    ):
        writer.append(rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"spans": np.zeros((3, 2))},
        {"valid": np.zeros(3, np.int32)},
        {"spans": np.array([[0, 1], [1, np.nan]])},
        {"spans": np.array([[0, 1], [2, 1.5]])},
    ],
)
def test_spans_that_cannot_be_are_a_bug(tmp_path, samples, changes):
    with (
        pytest.raises(ValueError, match="video 'v'"),
        ShardWriter(tmp_path / "s", "default", samples.entry(), "01", 0) as writer,
    ):
        writer.append(samples.rows(0, 2))
        samples.end(writer, "v", 2, **changes)


def test_a_video_without_rows_or_left_open_or_twice_is_a_bug(tmp_path, samples):
    entry = samples.entry()
    with pytest.raises(ValueError, match="0 rows"), ShardWriter(tmp_path, "default", entry, "01", 0) as writer:
        samples.end(writer, "v", 0)
    with pytest.raises(ValueError, match="neither ended"), ShardWriter(tmp_path, "default", entry, "01", 0) as writer:
        writer.append(samples.rows(0, 2))
        writer.finish()
    with pytest.raises(ValueError, match="'v' stands in"), ShardWriter(tmp_path, "default", entry, "01", 0) as writer:
        for _ in range(2):
            writer.append(samples.rows(0, 2))
            samples.end(writer, "v", 2)
        writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_regular_spans_are_a_rule_and_irregular_ones_an_array(tmp_path, samples):
    irregular = samples.spans(6)
    irregular[2, 0] += 0.25
    with ShardWriter(tmp_path / "s", "default", samples.entry(), "01", 0) as writer:
        writer.append(samples.rows(0, 5))
        samples.end(writer, "even", 5, spans=samples.spans(5, 4.5))
        writer.append(samples.rows(1, 6))
        samples.end(writer, "uneven", 6, spans=irregular, valid=np.array([0, 0, 3, 0, 0, 1]))
        shard = writer.finish()
    index = index_of(shard, tmp_path)
    even, uneven = index.videos
    assert (even.start, even.step, even.length, even.end) == (0.0, 1.0, 1.0, 4.5)
    assert (uneven.start, uneven.step, uneven.length, uneven.end) == (0.0, None, None, 6.0)
    files = {file.path.rpartition("/")[2].partition(".")[2]: file.scratch for file in shard.files}
    np.testing.assert_array_equal(np.load(files["spans.npy"]), np.concatenate([samples.spans(5, 4.5), irregular]))
    np.testing.assert_array_equal(np.load(files["valid.npy"]), [0] * 5 + [0, 0, 3, 0, 0, 1])


def test_a_regular_shard_without_padding_has_no_arrays_beside_it(tmp_path, samples):
    shard = samples.shard(tmp_path, samples.entry())
    assert sorted(file.path.partition(".")[2] for file in shard.files) == ["json", "npy"]


@settings(deadline=None)
@given(
    rows=st.integers(1, 50),
    start=st.floats(-10, 1e4),
    step=st.floats(0.01, 30),
    length=st.floats(0, 60),
    cut=st.floats(0, 1),
)
def test_a_rule_gives_the_spans_back(tmp_path_factory, samples, rows, start, step, length, cut):
    last = start + (rows - 1) * step
    spans = regular_spans(rows, start, step, length, last + cut * length)
    entry = samples.entry(row_shape=(1,))
    with ShardWriter(tmp_path_factory.mktemp("s"), "default", entry, "01", 0) as writer:
        writer.append(np.ones((rows, 1), np.float16))
        samples.end(writer, "v", rows, spans=spans)
        video = writer._videos[0]
        if video.step is not None and video.length is not None:
            found = regular_spans(rows, video.start, video.step, video.length, video.end)
            np.testing.assert_allclose(found, spans, atol=1e-6, rtol=0)
        else:
            assert rows > 1, "one row is always regular"
        writer.finish()


def test_checksums_are_those_of_blocks_of_whole_rows():
    rows = np.random.RandomState(0).randn(300, 128).astype(np.float32)  # 512 bytes a row, 128 rows in 64 KiB
    checksums = checksum_rows(rows)
    blocks = [rows[:128], rows[128:256], rows[256:]]
    assert checksums.block_rows == 128
    assert checksums.xxh3_64 == "".join(xxhash.xxh3_64_hexdigest(block.tobytes()) for block in blocks)
    assert checksum_rows(np.zeros((3, 100_000), np.uint8)).block_rows == 1
    assert checksum_rows(rows[:0]).xxh3_64 == ""


def test_arrays_are_plain_npy(tmp_path):
    array = np.arange(6, dtype=np.float64).reshape(3, 2)
    (tmp_path / "a.npy").write_bytes(npy_bytes(array.T.copy(order="F").T))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@BOTH
def test_an_error_deletes_what_was_begun_and_nothing_else(tmp_path, samples, container):
    (tmp_path / "default-00000-0000.old").write_text("of somebody with a longer name")
    other = samples.shard(tmp_path, samples.entry(container), unit=1)
    with (
        pytest.raises(ZeroDivisionError),
        ShardWriter(tmp_path, "default", samples.entry(container), "01", 0) as writer,
    ):
        writer.append(samples.rows(0, 2))
        raise ZeroDivisionError
    assert {path.name for path in tmp_path.iterdir()} == {
        "default-00000-0000.old",
        *(f.scratch.name for f in other.files),
    }


@BOTH
def test_a_really_full_disk_stops_early_and_gives_its_space_back(small_disk, samples, container):
    entry = samples.entry(container, dtype="float32", row_shape=(512,))
    with pytest.raises(StoppedEarly), ShardWriter(small_disk / "s", "default", entry, "01", 0) as writer:
        for video in range(20):
            writer.append(samples.rows(video, 64, entry))
            samples.end(writer, f"v{video}", 64)
    assert list((small_disk / "s").iterdir()) == []
    free = os.statvfs(small_disk)
    assert free.f_bavail * free.f_frsize > 900_000, "an open handle would keep what was written"
