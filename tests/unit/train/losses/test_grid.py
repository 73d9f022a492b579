"""Tiles cover every pair once, edges included, and leave out what counts for nothing."""

from __future__ import annotations

import pytest
import torch

from train.losses.grid import Grid, blocks, lowest


@pytest.mark.parametrize(("length", "size"), [(12, 5), (12, 4), (3, 5), (12, 0), (1, 1)])
def test_blocks_cover_everything_once(length, size):
    assert [i for block in blocks(length, size) for i in range(length)[block]] == list(range(length))
    assert all(0 < block.stop - block.start <= (size or length) for block in blocks(length, size))


@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("mask_same_video", [True, False])
@pytest.mark.parametrize("side", [0, 2, 3])
def test_exactly_the_pairs_that_count_have_a_logit(with_own, mask_same_video, side):
    """Clips 2 to 5 of seven are this rank's; clips 0, 3 and 6 are of one video."""
    mask = torch.arange(3) < torch.tensor([3, 1, 2, 0, 3, 2, 1])[:, None]
    ids = torch.tensor([9, 1, 2, 9, 3, 4, 9])
    grid = Grid(ids[2:6], mask, ids, 2, with_own, mask_same_video, side)
    seen = torch.full((4, 21), torch.nan)
    for rows in grid.row_blocks():
        for tile in grid.tiles(rows):
            text = grid.clean(torch.full((21, 1), 2.0), tile.texts)
            seen[tile.rows, tile.texts] = grid.logits(torch.full((4, 1), 3.0)[rows], text, tile)
    for i in range(4):
        for j in range(7):
            same = i + 2 == j
            counts = with_own if same else not (mask_same_video and ids[i + 2] == ids[j])
            for k in range(3):
                expected = 6.0 if counts and mask[j, k] else lowest(seen)
                assert seen[i, j * 3 + k] == expected


@pytest.mark.parametrize("side", [0, 1, 3])
def test_rows_without_a_bag_among_the_columns_meet_all_of_other_videos(side):
    rows, columns = torch.tensor([5, 6, 5, 7]), torch.tensor([6, 5, 8, 6, 9])
    grid = Grid(rows, torch.ones(5, 1, dtype=torch.bool), columns, None, False, True, side)
    assert grid.own_candidates == 0
    seen = torch.full((4, 5), torch.nan)
    for block in grid.row_blocks():
        assert grid.own_texts(block) == slice(0, 0)
        for tile in grid.tiles(block):
            seen[tile.rows, tile.texts] = grid.logits(
                torch.full((4, 1), 3.0)[block], torch.full((5, 1), 2.0)[tile.texts], tile
            )
    assert torch.equal(seen, torch.where(rows[:, None] == columns, lowest(seen), 6.0))
