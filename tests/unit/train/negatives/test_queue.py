"""The queue: what it holds after batches of any size, and that it can be saved."""

from __future__ import annotations

import pytest
import torch

from train.negatives.fresh import Fresh
from train.negatives.queue import Queue, Ring

LIKE = torch.zeros(2)


def numbered(first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.arange(first, first + count)
    return torch.stack([ids.float(), -ids.float()], dim=1), ids


@pytest.mark.parametrize("sizes", [(3, 3, 3), (2, 5, 1, 4), (7, 7), (20,), (1, 16, 0, 2), (0,)])
def test_a_ring_holds_the_last_vectors_and_nothing_else(sizes):
    ring, pushed = Ring(7, LIKE), 0
    for size in sizes:
        ring.push(*numbered(pushed, size))
        pushed += size
        vectors, ids = ring.content()
        expected = set(range(max(0, pushed - 7), pushed))
        assert set(ids.tolist()) == expected
        assert len(ids) == len(expected)
        assert torch.equal(vectors, torch.stack([ids.float(), -ids.float()], dim=1))


def test_a_batch_adds_its_videos_and_its_captions_one_by_one():
    queue = Queue(8, LIKE)
    first = queue.draw(0)
    assert [len(part) for part in first] == [0, 0, 0, 0]
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    text = torch.arange(12.0).view(3, 2, 2)
    queue.push(Fresh(torch.ones(3, 2), text, mask, torch.tensor([4, 5, 6])))
    beyond = queue.draw(1)
    assert beyond.video_ids_Q.tolist() == [4, 5, 6]
    assert beyond.text_ids_P.tolist() == [4, 6, 6]
    assert beyond.text_PD.tolist() == [[0, 1], [8, 9], [10, 11]]


def test_a_saved_queue_goes_on_where_it_was():
    def pushed(queue, numbers):
        for number in numbers:
            vectors, ids = numbered(10 * number, 3)
            queue.push(Fresh(vectors, vectors[:, None], torch.ones(3, 1, dtype=torch.bool), ids))
        return queue

    whole = pushed(Queue(7, LIKE), range(5)).draw(0)
    saved = pushed(Queue(7, LIKE), range(3)).state_dict()
    resumed = Queue(7, LIKE)
    resumed.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(pushed(resumed, range(3, 5)).draw(0), whole, strict=True))
