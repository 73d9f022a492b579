from __future__ import annotations

import pytest
import torch

import train.health
from train.distributed import ALONE, World
from train.health import LINES, Health, shares
from train.step import StepResult
from train.timing import Interval


@pytest.fixture
def look(monkeypatch):
    """Lines of a log of several ranks: their losses, (elapsed, data, communicating) seconds, all cosines alike."""

    def lines(health: Health, losses: list[float], times: list[tuple[float, ...]], cosine: float = 0.0, norm=1.0):
        # Two unit vectors whose sum has the wanted length; the gather puts all into the first rank's sums.
        length = (2 + 2 * cosine) ** 0.5
        sums = torch.zeros(len(losses), 2, 4, dtype=torch.float64)
        sums[0] = torch.tensor([length, 0.0, 0.0, 2.0])
        rows = [
            torch.cat([torch.tensor([loss, *time], dtype=torch.float64), sums[rank].flatten()])
            for rank, (loss, time) in enumerate(zip(losses, times, strict=True))
        ]
        monkeypatch.setattr(train.health, "gather_plain", lambda own, world: torch.stack(rows))
        result = StepResult(1.0, norm, 0.1, 0.5, 0.1, 8, 1.0, False, losses[0], sums[0])
        return health.at_log(result, Interval(*times[0], 8))

    return lines


def ranks(size: int) -> Health:
    return Health(World(0, size, 0, torch.device("cpu")))


CALM = (1.0, 0.0, 0.1)


def kinds(health, look, count: int, **line) -> list[list[str]]:
    return [[sign.kind for sign in look(health, **line)[1]] for _ in range(count)]


def test_a_ranks_loss_that_stays_higher_is_told_once_and_again_after_it_was_well(look):
    health = ranks(3)
    bad, good = {"losses": [1.0, 1.4, 1.0], "times": [CALM] * 3}, {"losses": [1.0, 1.2, 1.0], "times": [CALM] * 3}
    assert kinds(health, look, 2 * LINES, **bad) == [[]] * (LINES - 1) + [["rank_loss"]] + [[]] * LINES
    assert kinds(health, look, LINES, **good) == [[]] * LINES
    found = [kind for line in kinds(health, look, LINES, **bad) for kind in line]
    assert found == ["rank_loss"]


def test_a_gradient_of_zero_is_told_at_once(look):
    health = ranks(1)
    assert kinds(health, look, 2, losses=[0.0], times=[CALM]) == [[], []]
    assert kinds(health, look, 3, losses=[0.0], times=[CALM], norm=0.0) == [["no_gradient"], [], []]


def test_the_message_names_the_rank_and_the_numbers(look):
    health = ranks(2)
    for _ in range(LINES):
        numbers, signs = look(health, losses=[1.0, 1.5], times=[CALM] * 2)
    assert "the loss of rank 1 stays at 1.5, the others' at 1 on average" in signs[0].message
    assert numbers["rank_losses"] == [1.0, 1.5]


@pytest.mark.parametrize("losses", [[1.0, 1.29], [0.01, 0.04], [1.0]])
def test_losses_that_differ_by_chance_are_none_of_its_business(look, losses):
    assert kinds(ranks(len(losses)), look, 2 * LINES, losses=losses, times=[CALM] * len(losses)) == [[]] * 2 * LINES


def test_similarities_that_collapse(look):
    line = {"losses": [1.0], "times": [CALM]}
    assert kinds(ranks(1), look, LINES, **line, cosine=0.97)[-1] == ["collapse"]
    assert kinds(ranks(1), look, LINES, **line, cosine=0.94)[-1] == []
    numbers, _ = look(ranks(1), **line, cosine=0.97)
    assert numbers["cosine_videos"] == pytest.approx(0.97)
    assert "rank_losses" not in numbers


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 0.6, 0.5, 0.6, 0.5], [0, 0, 0, 1, 0]),
        ([0.5, 0.51, 0.5, 0.51], [0, 0, 0, 0]),
        ([0.1, 0.2, 0.3, 0.4, 0.5], [0, 0, 0, 0, 0]),
        ([0.5, 0.6, 0.5, 0.55, 0.8, 0.5, 0.8, 0.5], [0, 0, 0, 1, 0, 0, 1, 0]),
    ],
)
def test_a_validation_that_swings(values, expected):
    health = Health(ALONE)
    found = [health.at_validation(value) for value in values]
    assert [len(signs) for signs in found] == expected
    assert all("model.temperature.value" in sign.message for signs in found for sign in signs)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(4.0, 3.0, 0.0)], "data_wait"),
        ([(4.0, 2.0, 0.0), (4.0, 0.0, 2.0)], "slow_data"),
        ([(4.0, 0.0, 0.2), (4.0, 0.0, 2.0), (4.0, 0.0, 2.0)], "slow_rank"),
        ([(4.0, 1.0, 1.0), (4.0, 1.0, 1.0)], None),
    ],
)
def test_a_rank_that_waits_is_told_of_once_in_ten_seconds(look, times, expected):
    health = ranks(len(times))
    found = kinds(health, look, 6, losses=[1.0] * len(times), times=times)
    assert found == [[], [], [expected] if expected else [], [], [], []]


def test_the_slow_rank_is_the_one_that_does_not_wait(look):
    health, times = ranks(3), [(11.0, 0.0, 5.0), (11.0, 0.0, 0.5), (11.0, 0.0, 6.0)]
    (sign,) = look(health, losses=[1.0] * 3, times=times)[1]
    assert "the others wait for rank 1: they spend 50% of the time in collectives, it 5%" in sign.message


def test_shares_are_means_over_ranks():
    found = shares(torch.tensor([[2.0, 1.0, 0.0], [4.0, 0.0, 1.0]]))
    assert found == pytest.approx({"data_wait": 0.25, "communicating": 0.125, "computing": 0.625})


def test_what_is_told_is_the_same_after_a_resume(look):
    line = {"losses": [1.0, 1.5], "times": [CALM] * 2, "cosine": 0.99}
    for cut in (3, LINES, LINES + 3):
        before, after = ranks(2), ranks(2)
        found = kinds(before, look, cut, **line)
        after.load_state_dict(before.state_dict())
        found += kinds(after, look, 2 * LINES - cut, **line)
        assert [number for number, line_kinds in enumerate(found) if line_kinds] == [LINES - 1]
    other = ranks(3)
    other.load_state_dict(before.state_dict())
    assert kinds(other, look, 1, losses=[1.0] * 3, times=[CALM] * 3) == [[]]
