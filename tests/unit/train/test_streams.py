from __future__ import annotations

import itertools

import torch

from train.streams import Purpose, begin_stream, stream_seed


def test_no_two_ranks_or_purposes_share_a_stream():
    seeds = [
        stream_seed(seed, purpose, rank, step)
        for seed, purpose, rank, step in itertools.product((0, 1, 2**63 - 1), Purpose, range(16), range(16))
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_stream_begins_anew_each_time():
    drawn = []
    for _ in range(2):
        begin_stream(5, Purpose.DROPOUT, rank=1)
        drawn.append(torch.rand(4))
    assert torch.equal(*drawn)
    begin_stream(5, Purpose.DROPOUT, rank=0)
    assert not torch.equal(torch.rand(4), drawn[0])
