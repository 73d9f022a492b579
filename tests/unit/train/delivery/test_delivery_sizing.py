from __future__ import annotations

import pytest

from train.delivery.sizing import available_cores, batches_ahead, ring_slots, workers_for


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("cores", [16, 32, 64, 96, 128, 192])
def test_workers_take_about_60_percent_of_the_cores(cores, ranks):
    assert abs(workers_for(cores, ranks) * ranks / cores - 0.6) <= max(0.1, 0.5 * ranks / cores)


def test_every_rank_has_at_least_one_worker():
    assert workers_for(1, 1) == workers_for(2, 1) == workers_for(2, 8) == 1
    assert available_cores() >= 1


def test_slots_hold_what_is_ahead_the_batch_in_use_and_the_one_before():
    assert batches_ahead(0, 2) == batches_ahead(1, 2) == 2
    assert batches_ahead(3, 2) == 6
    assert ring_slots(3, 2) == 8
