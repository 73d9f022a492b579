"""Reading rows: batches across shards equal a naive loop, nothing is ever read from elsewhere, readers travel light."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared import checks
from shared.errors import DamageFound, StoreError
from shared.rewrite import shard_without
from shared.schema import ShardRef
from shared.shard_writer import ShardWriter
from shared.store import open_store, open_writer
from shared.verify import verify_store

BOTH = pytest.mark.parametrize("container", ["npy", "h5"])
MAPPINGS = pytest.mark.parametrize("mapping", ["auto", "mmap", "pread"])


@pytest.fixture(scope="module", params=["npy", "h5"])
def stream(request, tmp_path_factory, samples):
    path = tmp_path_factory.mktemp("features") / "s"
    return open_store(samples.store(path, request.param, units=3)).stream("default")


def test_videos_are_sorted_and_counted(stream, samples):
    assert stream.video_ids == ["v00", "v01", "v02", "v10", "v11", "v12", "v20", "v21", "v22"]
    assert stream.rows_per_video.tolist() == [5, 6, 7] * 3
    assert stream.durations.tolist() == [5.0, 6.0, 7.0] * 3
    assert stream.failures == [(f"x{unit}", samples.failure) for unit in range(3)]
    assert stream.index_of(["v11", "none", "v00"]).tolist() == [4, -1, 0]
    assert (stream.row_shape, stream.dtype, stream.fingerprint) == ((8,), np.float16, "ab")


def test_whole_videos(stream, samples):
    for number, video_id in enumerate(stream.video_ids):
        unit, video = int(video_id[1]), int(video_id[2])
        np.testing.assert_array_equal(stream.read(number), samples.rows(10 * unit + video, 5 + video))
        np.testing.assert_array_equal(stream.spans(number), samples.spans(5 + video))
        assert stream.valid(number).tolist() == [0] * (5 + video)
        assert stream.record(number).id == video_id
    stream.read(0)[0] = 0
    np.testing.assert_array_equal(stream.read(0), samples.rows(0, 5), err_msg="what a caller does to a copy is its own")
    np.testing.assert_array_equal(stream.read(1, 2, 3), samples.rows(1, 6)[2:5])


@st.composite
def windows(draw):
    video = draw(st.integers(0, 8))
    rows = 5 + video % 3
    first = draw(st.integers(0, rows))
    return video, first, draw(st.integers(0, rows - first))


@pytest.fixture(scope="module")
def readers(stream):
    return {how: open_store(stream.store).stream("default", mapping=how) for how in ("auto", "mmap", "pread")}


@settings(max_examples=200, deadline=None)
@given(
    batch=st.lists(windows(), max_size=12),
    length=st.none() | st.integers(0, 9),
    mapping=st.sampled_from(["auto", "mmap", "pread"]),
)
def test_gather_equals_a_naive_loop(stream, readers, batch, length, mapping):
    video_B, first_B, rows_B = np.array(batch, np.int64).reshape(-1, 3).T
    out, mask = readers[mapping].gather(video_B, first_B, rows_B, length)
    assert out.flags.writeable
    steps = max(rows_B, default=0) if length is None else length
    expected = np.zeros((len(batch), steps, 8), np.float16)
    for slot, (video, first, rows) in enumerate(batch):
        rows = min(rows, steps)
        expected[slot, :rows] = stream.read(video)[first : first + rows]
        assert mask[slot].tolist() == [True] * rows + [False] * (steps - rows)
    np.testing.assert_array_equal(out, expected)
    assert out.dtype == np.float16


@pytest.mark.parametrize(
    ("video", "first", "rows"), [(-1, 0, 1), (9, 0, 1), (0, -1, 2), (0, 0, 6), (0, 5, 1), (0, 2, -1), (4, 6, 1)]
)
def test_rows_of_another_video_are_never_returned(stream, video, first, rows):
    """-1 is what `index_of` says of an unknown id: NumPy would take the last video."""
    with pytest.raises(IndexError, match="'default'"):
        stream.gather(np.array([0, video]), np.array([0, first]), np.array([1, rows]))


def test_a_reader_pickles_small_and_works_elsewhere(stream):
    stream.read(0)
    data = pickle.dumps(stream)
    assert len(data) < 1024
    again = pickle.loads(data)
    np.testing.assert_array_equal(again.read(5), stream.read(5))


def test_pickles_do_not_grow_with_shards(stream):
    refs = [ShardRef(name=f"{n:05d}-{n:012x}", unit="ab", rows=0, videos=0, failed=0) for n in range(500)]
    small = len(pickle.dumps(stream))
    shards, stream.entry = stream.entry, stream.entry.model_copy(update={"shards": tuple(refs)})
    try:
        assert abs(len(pickle.dumps(stream)) - small) < 8
    finally:
        stream.entry = shards


def test_a_reader_of_a_stream_that_has_changed_is_refused(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    data = pickle.dumps(open_store(path).stream("default"))
    with open_writer(path) as writer:
        entry = writer.root.streams["default"]
        writer.commit([], streams={"default": entry.model_copy(update={"shards": entry.shards[:1]})})
    with pytest.raises(StoreError, match="was changed while it was in use"):
        pickle.loads(data)


def test_readers_survive_a_fork(stream):
    expected = stream.read(7).tobytes()
    child = os.fork()
    if not child:
        os._exit(0 if stream.read(7).tobytes() == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def irregular(tmp_path, samples):
    spans = samples.spans(6)
    spans[2, 0] += 0.25
    with open_writer(tmp_path / "s") as writer:
        entry = samples.entry()
        with ShardWriter(writer.scratch, "default", entry, "01", 0) as shard:
            for video, valid in (("b", [0] * 6), ("a", [0, 0, 3, 0, 0, 1])):
                shard.append(samples.rows(0, 6))
                samples.end(shard, video, 6, spans=spans, valid=np.array(valid))
            done = shard.finish()
        writer.commit(done.files, streams={"default": entry.model_copy(update={"shards": (done.ref,)})})
    return tmp_path / "s", spans


def test_irregular_spans_and_valid_counts(tmp_path, samples):
    path, spans = irregular(tmp_path, samples)
    stream = open_store(path).stream("default")
    for number in range(2):
        np.testing.assert_array_equal(stream.spans(number), spans)
    assert [stream.valid(number).tolist() for number in range(2)] == [[0, 0, 3, 0, 0, 1], [0] * 6]


@pytest.mark.parametrize("suffix", ["spans.npy", "valid.npy", "npy", "json"])
def test_a_cut_file_is_an_error_that_names_it(tmp_path, samples, suffix):
    path, _ = irregular(tmp_path, samples)
    file = next(file for file in path.glob(f"features/default/*.{suffix}") if file.name.partition(".")[2] == suffix)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamageFound, match=file.name):  # noqa: PT012  (which call finds it depends on the file)
        stream = open_store(path).stream("default")
        stream.read(0)
        stream.spans(0)
        stream.valid(0)


@BOTH
def test_a_missing_file_is_an_error_that_names_it(tmp_path, samples, container):
    path = samples.store(tmp_path / "s", container)
    for file in path.glob(f"features/default/*.{container}"):
        file.unlink()
    stream = open_store(path).stream("default")
    with pytest.raises(DamageFound, match=rf"\.{container} is missing"):
        stream.read(0)


def test_a_changed_index_is_refused_when_opened(tmp_path, samples):
    path = samples.store(tmp_path / "s")
    index = next(path.glob("features/default/*.json"))
    index.write_bytes(index.read_bytes().replace(b'"duration": 5.0', b'"duration": 7.0'))
    with pytest.raises(DamageFound, match="its content changed"):
        open_store(path).stream("default")


def test_a_video_in_two_shards_is_refused(tmp_path, samples):
    with open_writer(tmp_path / "s") as writer:
        entry = samples.entry()
        shards = [samples.shard(writer.scratch / str(n), entry, videos=n) for n in (1, 2)]
        refs = tuple(shard.ref for shard in shards)
        files = [file for shard in shards for file in shard.files]
        writer.commit(files, streams={"default": entry.model_copy(update={"shards": refs})})
        with pytest.raises(StoreError, match="holds a video twice"):
            writer.store.stream("default")


@BOTH
def test_a_flipped_bit_in_rows_names_file_and_video(tmp_path, samples, container):
    path = tmp_path / "s"
    entry = samples.entry(container, row_shape=(20_000,))
    with open_writer(path) as writer:
        shard = samples.shard(writer.scratch, entry)
        writer.commit(shard.files, streams={"default": entry.model_copy(update={"shards": (shard.ref,)})})
    stream = open_store(path).stream("default")
    (file,) = path.glob(f"features/default/*.{container}")
    data = file.read_bytes()
    place = data.index(stream.read(1)[2:].tobytes()) + 7
    file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    stream = open_store(path).stream("default")
    # One row of 40 KB is a block: row 2 of video v01 is damaged, and nothing else.
    whole = stream.gather(np.array([0, 1, 1]), np.array([0, 0, 3]), np.array([5, 2, 3]))
    assert whole[1].sum() == 10
    for _ in range(2):
        with pytest.raises(DamageFound, match=rf"{file.name} is damaged: the checksum of block 7, .* of video 'v01'"):
            stream.gather(np.array([0, 1]), np.array([0, 2]), np.array([1, 1]))
        with pytest.raises(DamageFound, match=f"{file.name} is damaged"):
            stream.read(1)
    assert len(stream.read(2)) == 7
    with pytest.raises(DamageFound, match="is damaged"):
        pickle.loads(pickle.dumps(stream)).read(1)
    trusting = pickle.loads(pickle.dumps(open_store(path).stream("default", verify="never")))
    assert len(trusting.read(1)) == 6


def test_each_block_is_checked_once_or_always(stream, monkeypatch):
    checked = []
    right = checks.BlockChecks._check_block
    monkeypatch.setattr(
        checks.BlockChecks,
        "_check_block",
        lambda self, block, *rest: checked.append(block) or right(self, block, *rest),
    )
    for verify, expected in (("never", []), ("first", [0, 1, 2]), ("always", [0, 1, 2, 0] * 3)):
        checked.clear()
        reader = open_store(stream.store).stream("default", verify=verify)
        for _ in range(3):
            reader.gather(np.array([0, 4, 8]), np.zeros(3, int), np.full(3, 2))
            reader.read(1)
        assert checked == expected


@BOTH
@MAPPINGS
def test_a_bit_that_flips_later_is_found_by_always_alone(tmp_path, samples, container, mapping):
    path = samples.store(tmp_path / "s", container, units=1)
    first, always = (open_store(path).stream("default", verify=how, mapping=mapping) for how in ("first", "always"))
    good = first.read(1)
    np.testing.assert_array_equal(always.read(1), good)
    (file,) = path.glob(f"features/default/*.{container}")
    with file.open("r+b") as opened:
        opened.seek(file.read_bytes().index(good.tobytes()))
        opened.write(bytes([good.tobytes()[0] ^ 1]))
    assert (first.read(1) != good).sum() == 1, "what was found whole is believed"
    with pytest.raises(DamageFound, match=f"{file.name} is damaged: the checksum of block 0"):
        always.read(1)


@pytest.mark.parametrize(("value", "what"), [(np.nan, "not finite"), (-np.inf, "not finite"), (0, "zero everywhere")])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_that_no_extractor_gives_are_refused_by_name(tmp_path, samples, monkeypatch, value, what, dtype):
    """Their checksums are right: another program wrote them."""
    monkeypatch.setattr("shared.shard_writer._refuse_bad_rows", lambda rows: None)
    entry = samples.entry(dtype=dtype)
    rows = samples.rows(0, 3, entry)
    rows[1, slice(None) if value == 0 else 3] = value
    with open_writer(tmp_path / "s") as writer:
        with ShardWriter(writer.scratch, "default", entry, "01", 0) as shard:
            for video, held in (("a", samples.rows(1, 4, entry)), ("b", rows)):
                shard.append(held)
                samples.end(shard, video, len(held))
            done = shard.finish()
        writer.commit(done.files, streams={"default": entry.model_copy(update={"shards": (done.ref,)})})
    store = open_store(tmp_path / "s")
    for _ in range(2):
        with pytest.raises(DamageFound, match=rf"has a row that is {what}: row 5, of video 'b'; .*preprocess remove"):
            store.stream("default").read(0)
    assert [(damage.path.rpartition(".")[2], what in damage.what) for damage in verify_store(tmp_path / "s")] == [
        ("npy", True)
    ]
    assert len(store.stream("default", verify="never").read(1)) == 3


@MAPPINGS
def test_both_ways_of_reading_give_the_same(stream, mapping):
    reader = open_store(stream.store).stream("default", mapping=mapping)
    for number in range(9):
        np.testing.assert_array_equal(reader.read(number), stream.read(number))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(reader)).read(3), stream.read(3))


def test_rows_go_where_they_are_wanted(stream):
    out = np.full((2, 4, 8), 7, np.float16)
    stream.place(np.array([4, 0, 1]), np.array([1, 2, 0]), np.array([3, 2, 0]), out, np.array([5, 0, 3]))
    flat = out.reshape(8, 8)
    np.testing.assert_array_equal(flat[5:8], stream.read(4)[1:4])
    np.testing.assert_array_equal(flat[:2], stream.read(0)[2:4])
    assert (flat[2:5] == 7).all()
    one = np.array([1]), np.array([0]), np.array([2])
    with pytest.raises(IndexError, match="leaves the"):
        stream.place(*one, out, np.array([7]))
    with pytest.raises(IndexError, match="leaves the"):
        stream.place(*one, out, np.array([-1]))
    for other in (out.astype(np.float32), out[:, ::2], np.zeros((8, 7), np.float16)):
        with pytest.raises(ValueError, match="expected contiguous float16"):
            stream.place(*one, other, np.array([0]))
    with pytest.raises(ValueError, match="expected"):
        stream.gather(*one, out=out)
    buffer = np.ones((1, 3, 8), np.float16)
    assert stream.gather(*one, 3, buffer)[0] is buffer
    assert not buffer[0, 2].any()


@settings(max_examples=50, deadline=None)
@given(
    batch=st.lists(windows().filter(lambda window: window[2] > 0), max_size=12), how=st.sampled_from(["mean", "max"])
)
def test_pooling_equals_a_naive_loop(stream, batch, how):
    video_B, first_B, rows_B = np.array(batch, np.int64).reshape(-1, 3).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shared.pooling._BATCH_BYTES", 100)
        pooled = stream.pool(video_B, first_B, rows_B, how)
    assert (pooled.dtype, pooled.shape) == (np.float32, (len(batch), 8))
    for found, (video, first, rows) in zip(pooled, batch, strict=True):
        taken = stream.read(video, first, rows).astype(np.float64)
        np.testing.assert_allclose(found, getattr(taken, how)(axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(pooled, stream.pool(video_B, first_B, rows_B, how), err_msg="depends on its company")


def test_a_window_without_rows_has_no_mean(stream):
    with pytest.raises(ValueError, match="neither mean nor maximum"):
        stream.pool(np.array([0]), np.array([0]), np.array([0]))


@pytest.mark.parametrize("suffix", ["spans.npy", "valid.npy"])
def test_a_flipped_bit_in_a_side_array_is_damage(tmp_path, samples, suffix):
    path, _ = irregular(tmp_path, samples)
    (file,) = path.glob(f"features/default/*.{suffix}")
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    stream = open_store(path).stream("default")
    with pytest.raises(DamageFound, match=f"{file.name} is damaged: content changed"):
        stream.spans(0) if suffix == "spans.npy" else stream.valid(0)


@BOTH
def test_a_changed_bit_is_not_given_a_new_checksum(tmp_path, samples, container):
    store = open_store(samples.store(tmp_path / "s", container, units=1))
    file = next(store.path.glob(f"features/default/*.{container}"))
    data = file.read_bytes()
    place = data.index(store.stream("default").read(1).tobytes())
    file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    entry = store.root.streams["default"]
    with pytest.raises(DamageFound, match=f"{file.name} is damaged"):
        shard_without(store.path, "default", entry, entry.shards[0], {"v00"}, tmp_path / "new", store.root.files)


def test_an_index_that_is_a_folder_is_damage(tmp_path, samples):
    path = samples.store(tmp_path / "s", "npy", units=1)
    (index,) = (path / "features" / "default").glob("*.json")
    index.unlink()
    index.mkdir()
    with pytest.raises(DamageFound, match="is no file: a folder has its name; run `verify`"):
        open_store(path).stream("default")
