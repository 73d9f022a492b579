"""Several feature streams in one array: each row beside those of the same time, whatever the streams' rates are."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from shared.errors import DamageFound, RequestError, StoreError
from shared.store import open_store
from train.data import WindowData, WindowDataset
from train.delivery.arrays import BatchArrays
from train.delivery.config import DataConfig
from train.delivery.loader import Loader
from train.delivery.windows import WindowReader, first_captions

ALSO = ("slow", "uneven", "fast", "clips")


def uneven_spans(video: str, seconds: float) -> np.ndarray:
    """Scenes of other lengths in each video; every third video has evenly spaced rows."""
    number = int(video[-3:])
    borders = np.linspace(0, seconds, 6) if number % 3 == 0 else np.array([0.0, 1, 3 + number % 4 / 8, 9, seconds])
    return np.stack([borders[:-1], borders[1:]], axis=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory, small_store, add_stream, even):
    path = small_store(tmp_path_factory.mktemp("further") / "store", splits={"train": 6, "val": 4})
    add_stream(path, "slow", even(2.5), dim=3)
    add_stream(path, "uneven", uneven_spans, dim=5, dtype="float32")
    add_stream(path, "fast", even(0.3), dim=2)
    add_stream(path, "clips", even(0.7, 3.2), dim=4)
    add_stream(path, "some", even(1.0), dim=2, without=("train001", "train004", "val002"))
    add_stream(path, "pictures", even(1.0), kind="frames", dtype="uint8")
    return open_store(path)


def filled(reader, window_B):
    selection = first_captions(np.asarray(window_B), reader.bag_W, 1)
    arrays = BatchArrays.empty(reader.shape_of(selection))
    for array in arrays.present.values():
        array.view(np.uint8)[...] = 1
    reader.fill(selection, arrays)
    return arrays


def row_at(spans, time):
    keys = [
        (not begin <= time < end, max(begin - time, time - end, 0.0), abs((begin + end) / 2 - time), row)
        for row, (begin, end) in enumerate(spans.tolist())
    ]
    return min(keys)[3]


def plainly(store, reader, window, names, steps):
    """float64 (rows, D): what a window's rows are, one by one, from what each stream says of its video."""
    video = reader.manifest.video_ids[reader.windows.video_W[window]]
    first, rows = int(reader.windows.first_row_W[window]), int(reader.windows.rows_W[window])
    chosen = [(2 * t + 1) * rows // (2 * steps) for t in range(steps)] if rows > steps else list(range(rows))
    streams = [store.stream(name) for name in ("default", *names)]
    numbers = [int(stream.index_of([video])[0]) for stream in streams]
    found = []
    for row in (first + place for place in chosen):
        middle = streams[0].spans(numbers[0])[row].mean()
        parts = [streams[0].read(numbers[0], row, 1)[0]]
        for stream, number in zip(streams[1:], numbers[1:], strict=True):
            there = number >= 0
            parts.append(
                stream.read(number, row_at(stream.spans(number), middle), 1)[0]
                if there
                else np.zeros(stream.row_shape, stream.dtype)
            )
        found.append(np.concatenate([part.astype(np.float64) for part in parts]))
    return np.array(found)


@pytest.mark.parametrize("names", [("slow",), ("fast", "clips"), ("uneven",), ALSO])
@pytest.mark.parametrize("max_rows", [64, 4, 2])
def test_each_row_stands_beside_those_of_its_time(store, names, max_rows):
    reader = WindowReader(store, "default", "train", config=DataConfig(also=names, max_rows=max_rows))
    window_B = np.random.default_rng(0).integers(0, len(reader), 40)
    arrays = filled(reader, window_B)
    assert arrays.video_BTD.dtype == (np.float32 if "uneven" in names else np.float16)
    assert arrays.video_BTD.shape[2] == reader.input_dim == sum(reader.input_dims)
    for place, window in enumerate(window_B.tolist()):
        expected = plainly(store, reader, window, names, reader.max_rows)
        assert arrays.video_mask_BT[place].sum() == len(expected)
        np.testing.assert_array_equal(arrays.video_BTD[place, : len(expected)], expected)
        assert not arrays.video_BTD[place, len(expected) :].any()


def test_what_is_no_row_of_video_is_as_with_one_stream(store):
    alone = filled(WindowReader(store, "default", "train"), range(18))
    joined = filled(WindowReader(store, "default", "train", config=DataConfig(also=("fast",))), range(18))
    assert (joined.video_BTD[..., :8] == alone.video_BTD).all()
    for name in set(alone.present) - {"video_BTD"}:
        assert (getattr(joined, name) == getattr(alone, name)).all()


def test_an_irregular_first_stream(tmp_path, small_store, add_stream, even):
    path = small_store(tmp_path / "store", splits={"train": 5})
    add_stream(path, "fast", even(0.3), dim=2)

    def jittered(video: str, seconds: float) -> np.ndarray:
        borders = np.arange(seconds + 1) + np.concatenate([[0], np.random.default_rng(1).uniform(-0.4, 0.4, 15)])
        return np.stack([borders[:-1], borders[1:]], axis=1)

    add_stream(path, "default", jittered, dim=8, fingerprint="ab")
    store = open_store(path)
    reader = WindowReader(store, "default", "train", config=DataConfig(also=("fast",)))
    arrays = filled(reader, range(15))
    for window in range(15):
        expected = plainly(store, reader, window, ("fast",), reader.max_rows)
        np.testing.assert_array_equal(arrays.video_BTD[window, : len(expected)], expected)


@pytest.mark.parametrize(("verify", "mapping"), [("never", "pread"), ("always", "mmap"), ("first", "auto")])
def test_however_they_are_read_copied_or_handed_over(store, tmp_path, verify, mapping):
    expected = filled(WindowReader(store, "default", "train", config=DataConfig(also=ALSO)), range(18))
    config = DataConfig(also=ALSO, verify=verify, mapping=mapping, stage=tmp_path / "local")
    reader = WindowReader(store, "default", "train", config=config)
    assert len(list((tmp_path / "local").glob("*/*.npy"))) == 5
    assert len(pickle.dumps(reader)) < 4096
    for other in (reader, pickle.loads(pickle.dumps(reader))):
        for name, array in filled(other, range(18)).present.items():
            assert (array == getattr(expected, name)).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_thread_and_the_processes_of_a_loader(store, workers):
    config = DataConfig(also=ALSO, workers=workers)
    data = WindowData(store, "default", "train", config=config)
    picked = [first_captions(np.arange(start, start + 4), data.bag_W, 2) for start in range(0, 12, 4)]
    with Loader([data], [data.shape(4, 2)], config=config) as loader:
        for selection, batch in zip(picked, loader.batches(picked.__getitem__, 0, 3), strict=True):
            assert torch.equal(batch.video_BTD, data.batch(selection).video_BTD)


def test_torchs_own_loader_in_forked_processes(store):
    dataset = WindowDataset(store.path, config=DataConfig(also=ALSO))
    loader = torch.utils.data.DataLoader(dataset, batch_size=6, num_workers=2, multiprocessing_context="fork")
    read = torch.cat([batch["video_BTD"] for batch in loader])
    assert torch.equal(read, dataset.data.batch(first_captions(np.arange(18), dataset.data.bag_W, 5)).video_BTD)


def test_videos_that_a_stream_lacks_are_refused_or_zeros(store):
    config = DataConfig(also=("slow", "some"))
    with pytest.raises(StoreError, match=r"'some' of .* lacks 2 of 6 videos with windows \('train001', 'train004'\)"):
        WindowReader(store, "default", "train", config=config)
    with pytest.raises(StoreError, match=r"lacks 1 of 4 .*set data.missing=zeros"):
        WindowReader(store, "default", "val", config=config)
    config = config.model_copy(update={"missing": "zeros"})
    reader = WindowReader(store, "default", "train", config=config)
    arrays = filled(reader, range(18))
    for window in range(18):
        expected = plainly(store, reader, window, ("slow", "some"), reader.max_rows)
        np.testing.assert_array_equal(arrays.video_BTD[window, : len(expected)], expected)
    lacking = filled(reader, [3, 4, 12])
    assert not lacking.video_BTD[..., 11:].any()
    assert lacking.video_BTD[..., 8:11][lacking.video_mask_BT].any(axis=1).all()


def test_more_than_three_videos_are_counted_and_not_all_named(tmp_path, small_store, add_stream, even):
    path = small_store(tmp_path / "store", splits={"train": 6})
    add_stream(path, "few", even(1.0), without=tuple(f"train{n:03d}" for n in (0, 2, 3, 5)))
    with pytest.raises(StoreError, match=r"lacks 4 of 6 .*\('train000', 'train002', 'train003', \.\.\.\)"):
        WindowReader(open_store(path), "default", "train", config=DataConfig(also=("few",)))


def test_streams_that_cannot_stand_beside_the_first_are_refused(store):
    for names, error, message in (
        (("other",), StoreError, r"no stream 'other'; it has clips, default, "),
        (("default",), RequestError, r"data.also=\['default'\]: expected further streams"),
        (("slow", "slow"), RequestError, "each once"),
        (("pictures",), RequestError, r"holds frames, rows \(6, 6, 3\), and data.also names it"),
    ):
        with pytest.raises(error, match=message):
            WindowReader(store, "default", "train", config=DataConfig(also=names))
    with pytest.raises(ValidationError, match="missing=zeros without also"):
        DataConfig(missing="zeros")
    with pytest.raises(ValidationError, match="at least 1 item"):
        DataConfig(also=())


def test_what_decides_the_rows_is_in_the_identity(tmp_path, small_store, add_stream, even):
    path = small_store(tmp_path / "store", splits={"train": 4, "val": 2})
    config = DataConfig(also=("more",), missing="zeros")

    def identity(split="train"):
        return WindowReader(open_store(path), "default", split, config=config).identity

    add_stream(path, "more", even(2.0))
    first = identity()
    assert WindowReader(open_store(path), "default", "train").identity == {k: first[k] for k in first if k != "also"}
    assert identity() == first
    add_stream(path, "more", even(2.0), without=("val001",))
    assert identity() == first, "a video of another split changes nothing"
    assert identity("val") != identity("train")
    add_stream(path, "more", even(2.0), without=("train001",))
    assert identity()["also"]["more"]["rows"] != first["also"]["more"]["rows"]
    add_stream(path, "more", even(2.0), fingerprint="99")
    assert identity()["also"] == {"more": first["also"]["more"] | {"stream": "99"}}


def test_another_process_refuses_a_further_stream_that_has_changed(tmp_path, small_store, add_stream, even):
    path = small_store(tmp_path / "store", splits={"train": 4})
    add_stream(path, "more", even(2.0))
    reader = WindowReader(open_store(path), "default", "train", config=DataConfig(also=("more",)))
    data = pickle.dumps(reader)
    add_stream(path, "more", even(2.0), fingerprint="99")
    with pytest.raises(StoreError, match="was changed while it was in use"):
        pickle.loads(data)


@pytest.mark.parametrize("verify", ["first", "always"])
def test_a_flipped_bit_in_a_further_stream_names_its_file(store, tmp_path, verify):
    path = tmp_path / "store"
    shutil.copytree(store.path, path)
    (rows,) = (path / "features" / "clips").glob("*.npy")
    data = bytearray(rows.read_bytes())
    data[-3] ^= 16
    rows.write_bytes(data)
    config = DataConfig(also=("slow", "clips"), verify=verify)
    reader = WindowReader(open_store(path), "default", "train", config=config)
    with pytest.raises(DamageFound, match=r"features/clips/.*\.npy is damaged"):
        filled(reader, range(18))


def test_changed_spans_of_a_further_stream_are_damage(store, tmp_path):
    path = tmp_path / "store"
    shutil.copytree(store.path, path)
    (spans,) = (path / "features" / "uneven").glob("*.spans.npy")
    data = bytearray(spans.read_bytes())
    data[-3] ^= 16
    spans.write_bytes(data)
    reader = WindowReader(open_store(path), "default", "train", config=DataConfig(also=("uneven",)))
    with pytest.raises(DamageFound, match=r"features/uneven/.*\.spans\.npy is damaged"):
        filled(reader, range(18))


def test_bytes_that_a_plan_counts(store):
    reader = WindowReader(store, "default", "train", config=DataConfig(also=("slow", "uneven")))
    assert reader.row_bytes == 8 * 2 + 3 * 2 + 5 * 4
    uneven_rows = sum(len(uneven_spans(f"train{n:03d}", 15.0)) for n in range(6))
    assert reader.most_bytes(7) == 7 * reader.row_bytes
    assert reader.most_bytes(90) == 90 * 16 + 6 * 6 * 6 + uneven_rows * 20
    assert reader.rows_described == "8 + 3 + 5 from streams default, slow, uneven"
    assert WindowReader(store, "default", "train").rows_described == "8 from stream default"
