from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch

from shared.errors import DamageFound, RequestError
from shared.store import open_store
from train.data import WindowData
from train.delivery.config import DataConfig
from train.delivery.loader import Loader
from train.delivery.windows import first_captions
from train.order import Selection


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_store):
    path = small_store(tmp_path_factory.mktemp("loader") / "store", splits={"train": 8, "val": 4})
    return WindowData(open_store(path), "default", "train")


def select(data, candidates=3):
    """Step -> a batch of 4 windows, of its own at every step."""

    def selection(step):
        return first_captions((np.arange(4) * 5 + step) % len(data), data.bag_W, candidates)

    return selection


def loader(data, **config):
    return Loader([data], [data.shape(4, 3)], config=DataConfig(**config))


def assert_is(batch, expected):
    for name, tensor in expected.present.items():
        assert torch.equal(getattr(batch, name), tensor), name


@pytest.mark.parametrize("config", [{"prefetch": 1}, {"prefetch": 3}, {"workers": 1}, {"workers": 3, "prefetch": 1}])
def test_batches_come_in_order_from_anywhere(data, config):
    chosen = select(data)
    with loader(data, **config) as batches:
        for start, stop in [(0, 12), (5, 14), (3, 3), (11, 13)]:
            step = start
            for batch in batches.batches(chosen, start, stop):
                assert_is(batch, data.batch(chosen(step)))
                step += 1
            assert step == stop


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_may_be_left_for_another_which_ends_it(data, workers):
    chosen = select(data)
    with loader(data, workers=workers) as batches:
        first = batches.batches(chosen, 0, 20)
        assert_is(next(first), data.batch(chosen(0)))
        for step, batch in enumerate(batches.batches(chosen, 7, 12), start=7):
            assert_is(batch, data.batch(chosen(step)))
        with pytest.raises(RuntimeError, match="step 1: this loader was closed, or asked for other batches, since"):
            next(first)


class Interrupting:
    """Raises KeyboardInterrupt in this thread at the n-th line that is run of the files of train/delivery."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame, event, _argument):
        if "train/delivery" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_at_any_line_leaves_a_loader_that_gives_the_right_batches(data, workers):
    chosen = select(data)
    with loader(data, workers=workers) as batches:
        for line in range(1, 400):
            interrupting = Interrupting(line)
            sys.settrace(interrupting)
            try:
                for _ in batches.batches(chosen, 0, 3):
                    pass
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            for step, batch in enumerate(batches.batches(chosen, 10, 13), start=10):
                assert_is(batch, data.batch(chosen(step)))
            if interrupting.left > 0:
                break
        assert line > 60
        assert interrupting.left > 0


@pytest.mark.parametrize("workers", [0, 1])
def test_what_an_earlier_iterator_would_have_raised_is_not_raised_by_the_next(data, workers):
    chosen = select(data)

    def failing(step):
        if step == 2:
            raise ValueError("of step 2")
        return chosen(step)

    with loader(data, workers=workers, prefetch=3) as batches:
        next(batches.batches(failing, 0, 5))
        for step, batch in enumerate(batches.batches(chosen, 4, 6), start=4):
            assert_is(batch, data.batch(chosen(step)))
        with pytest.raises(ValueError, match="of step 2"):
            list(batches.batches(failing, 0, 5))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fork_is_refused_and_leaves_its_parent_alone(data, workers):
    chosen = select(data)
    with loader(data, workers=workers) as batches:
        taken = batches.batches(chosen, 0, 8)
        next(taken)
        child = os.fork()
        if child == 0:
            try:
                with batches:
                    batches.batches(chosen, 0, 2)
            except RuntimeError as error:
                os._exit(7 if "is a fork" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        for step, batch in enumerate(taken, start=1):
            assert_is(batch, data.batch(chosen(step)))


def test_more_memory_than_there_is_is_refused_with_workers_too(data):
    for workers in (0, 1):
        with pytest.raises(RequestError, match="cannot be held in memory"):
            Loader([data], [data.shape(10**9, 3)], config=DataConfig(workers=workers))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_stays_whole_as_long_as_anything_of_it_lives(data, workers):
    chosen = select(data)
    with loader(data, workers=workers, prefetch=3) as batches:
        kept, taken = [], batches.batches(chosen, 0, 40)
        kept.append(next(taken).video_BTD[2, 1:3].view(-1, 4))
        kept.append(next(taken).tokens_BKL.numpy()[1])
        kept.append(next(taken).caption_mask_BK.T)
        for step in range(3, 4):
            assert_is(next(taken), data.batch(chosen(step)))
        expected = [data.batch(chosen(step)) for step in range(3)]
        assert torch.equal(kept[0], expected[0].video_BTD[2, 1:3].view(-1, 4))
        assert (kept[1] == expected[1].tokens_BKL.numpy()[1]).all()
        assert torch.equal(kept[2], expected[2].caption_mask_BK.T)
        for step in range(4, 20):
            assert_is(next(taken), data.batch(chosen(step)))
        assert torch.equal(kept[0], expected[0].video_BTD[2, 1:3].view(-1, 4))
        with pytest.raises(RuntimeError, match="all 5 batches that fit are still in use: drop one"):
            kept.extend(taken)
        assert len(kept) == 5
        kept.clear()
        for step, batch in enumerate(batches.batches(chosen, 4, 20), start=4):
            assert_is(batch, data.batch(chosen(step)))


def test_what_was_delivered_outlives_the_loader(data):
    chosen = select(data)
    with loader(data, workers=1) as batches:
        batch = next(batches.batches(chosen, 6, 9))
    assert_is(batch, data.batch(chosen(6)))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_in_the_place_of_its_batch(tmp_path, small_store, workers):
    path = small_store(tmp_path / "store", splits={"train": 8, "val": 4})
    data = WindowData(open_store(path), "default", "train", config=DataConfig(verify="always"))
    chosen = select(data)
    with loader(data, workers=workers) as batches:
        taken = batches.batches(chosen, 0, 20)
        expected = [data.batch(chosen(step)) for step in range(3)]
        assert_is(next(taken), expected[0])
        (rows,) = path.glob("features/*/*.npy")
        with rows.open("r+b") as file:
            file.seek(-8, 2)
            file.write(b"\xff")
        delivered = []
        with pytest.raises(DamageFound, match=f"{rows.name} is damaged"):
            delivered.extend(batch for batch in taken)
        assert len(delivered) < 6, "made long before the damage"
        for batch, wanted in zip(delivered, expected[1:], strict=False):
            assert_is(batch, wanted)


@pytest.mark.parametrize("workers", [0, 2])
def test_sources_of_a_mixture_never_share_a_video(tmp_path, small_store, data, workers):
    other = WindowData(open_store(small_store(tmp_path / "other", seed=3)), "default", "val")
    sources, first_ids = [data, other], [0, 100]
    shapes = [data.shape(4, 3), other.shape(3, 2)]

    def chosen(step):
        source = step % 2
        part = first_captions((np.arange(4 - source) + step) % 8, sources[source].bag_W, 3 - source)
        return Selection(part.window_B, part.choice_BK, source=source)

    with Loader(sources, shapes, config=DataConfig(workers=workers), first_ids=first_ids) as batches:
        for step, batch in enumerate(batches.batches(chosen, 0, 9)):
            expected = sources[step % 2].batch(chosen(step))
            assert torch.equal(batch.video_ids_B, expected.video_ids_B + first_ids[step % 2])
            assert torch.equal(batch.video_BTD, expected.video_BTD)
            assert torch.equal(batch.tokens_BKL, expected.tokens_BKL)


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_on_a_gpu_batches_are_copies_from_page_locked_memory(data, workers):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    chosen, device = select(data), torch.device("cuda", 0)
    with Loader([data], [data.shape(4, 3)], config=DataConfig(workers=workers), device=device) as batches:
        assert torch.from_numpy(batches._maker.ring.memory).is_pinned()
        kept = list(batches.batches(chosen, 0, 50))
        for step, batch in enumerate(kept):
            assert batch.video_BTD.device == device
            assert_is(batch, data.batch(chosen(step)).to(device))
    assert not torch.from_numpy(batches._maker.ring.memory).is_pinned()
