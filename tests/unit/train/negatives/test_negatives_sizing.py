"""K by hand: bytes of an entry, of what fits, and what one more would take."""

from __future__ import annotations

import pytest

from train.negatives import BankConfig, MocoConfig, QueueConfig
from train.negatives.sizing import entry_bytes, largest_queue, remembered_bytes

# 16 dimensions of float32 and an id, both sides; for the loss a column more, and 16 bytes of sums and flags.
HELD, COMPARED = 2 * (16 * 4 + 8), 2 * (17 * 4 + 16)


def test_an_entry_by_hand():
    entry = entry_bytes(16, 4, biased=False)
    assert (entry.held, entry.compared, entry.total) == (144, 168, 312)
    assert entry_bytes(16, 4, biased=True).compared == 2 * (18 * 4 + 16)
    assert entry_bytes(16, 4, biased=False, copies=2, logits=100).compared == 2 * (2 * 17 * 4 + 16) + 100


@pytest.mark.parametrize("left", [0, 1, 311])
def test_k_is_what_fits_and_one_more_does_not(left):
    entry = entry_bytes(16, 4, biased=False)
    free, model = 1000 * 312 + left + 77_000, 77_000
    assert largest_queue(free, model, entry) == 1000
    needed = [model + sum(remembered_bytes(QueueConfig(size=size), entry, videos=5)) for size in (1000, 1001)]
    assert needed[0] <= free < needed[1]


def test_no_room_is_no_queue():
    entry = entry_bytes(16, 4, biased=False)
    assert largest_queue(10, 5_000, entry) == 0
    assert largest_queue(5_311, 5_000, entry) == 0
    assert largest_queue(5_312, 5_000, entry) == 1


def test_the_rule_has_its_figures():
    assert entry_bytes(16, 4, biased=False).rule(389_077, 77_000) == (
        "K = (free 389,077 - model 77,000) / (2 sides x (16 dimensions x 4 bytes + 8 of an id) held + 168 while "
        "compared = 312 bytes)"
    )


def test_what_each_kind_holds():
    entry = entry_bytes(16, 4, biased=False)
    assert remembered_bytes(None, entry, videos=9) == (0, 0)
    assert remembered_bytes(MocoConfig(size=10), entry, videos=9) == (10 * HELD, 10 * COMPARED)
    # A bank has one entry for each of 9 videos and says which were seen; a step copies at most those.
    assert remembered_bytes(BankConfig(size=4), entry, videos=9) == (2 * 9 * (64 + 1), 4 * (HELD + COMPARED))
    assert remembered_bytes(BankConfig(size=4096), entry, videos=9)[1] == 9 * (HELD + COMPARED)
