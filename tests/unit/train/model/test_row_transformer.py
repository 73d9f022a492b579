from __future__ import annotations

import pytest
import torch

from shared.errors import RequestError
from train.model.row_transformer import RowTransformer, TransformerConfig, waves


def make(dim: int = 8, **settings) -> RowTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return RowTransformer(dim, TransformerConfig(**settings), dropout=0.0).eval()


def reached(network: RowTransformer, rows: int, row: int) -> list[int]:
    """The rows on which output row `row` depends."""
    x_BTD = torch.randn(1, rows, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    network(x_BTD, torch.ones(1, rows, dtype=torch.bool))[0, row].square().sum().backward()
    return x_BTD.grad[0].abs().sum(dim=1).nonzero().flatten().tolist()


def test_local_layers_see_a_window_and_the_last_one_everything():
    local = {"layers": 1, "local_layers": 1, "window": 2}
    assert reached(make(**local), 9, 4) == [2, 3, 4, 5, 6]
    assert reached(make(**(local | {"layers": 2, "local_layers": 2})), 9, 0) == [0, 1, 2, 3, 4]
    assert reached(make(**(local | {"layers": 2})), 9, 4) == list(range(9))
    assert reached(make(layers=1, local_layers=0), 9, 8) == list(range(9))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
def test_padding_anywhere_changes_nothing(positions):
    network = make(positions=positions, window=1)
    x_BTD = torch.randn(1, 4, 8)
    expected = network(x_BTD, torch.ones(1, 4, dtype=torch.bool))
    padded = torch.full((1, 7, 8), 1e6)
    mask = torch.tensor([[False, True, True, False, True, True, False]])
    padded[mask] = x_BTD[0]
    torch.testing.assert_close(network(padded, mask)[mask], expected[0])


@pytest.mark.parametrize(("positions", "same"), [("sinusoidal", False), ("learned", False), ("none", True)])
def test_the_order_of_time_counts_where_there_are_positions(positions, same):
    network = make(positions=positions, local_layers=0)
    x_BTD, mask = torch.randn(1, 5, 8), torch.ones(1, 5, dtype=torch.bool)
    forwards, backwards = network(x_BTD, mask), network(x_BTD.flip(1), mask).flip(1)
    assert torch.allclose(forwards, backwards, atol=1e-5) == same


def test_a_clip_without_a_row_and_its_gradient_are_finite():
    network = make()
    x_BTD = torch.randn(2, 3, 8, requires_grad=True)
    mask = torch.tensor([[False] * 3, [True] * 3])
    network(x_BTD, mask).square().sum().backward()
    assert x_BTD.grad.isfinite().all()


def test_dropout_is_drawn_in_training_alone():
    network = RowTransformer(8, TransformerConfig(), dropout=0.5)
    x_BTD, mask = torch.randn(1, 5, 8), torch.ones(1, 5, dtype=torch.bool)
    assert not torch.equal(network(x_BTD, mask), network(x_BTD, mask))
    network.eval()
    assert torch.equal(network(x_BTD, mask), network(x_BTD, mask))


def test_waves_of_places():
    found = waves(torch.tensor([[0, 3]]), 5)
    assert found.shape == (1, 2, 5)
    assert found[0, 0].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert found[0, 1, 0] == pytest.approx(torch.tensor(3.0).sin().item())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 3}, r"model.dim=8 cannot be cut into model.video.transformer.heads=3"),
        ({"layers": 1, "local_layers": 2}, "local_layers=2 of layers=1"),
    ],
)
def test_what_does_not_fit_is_refused(settings, message):
    with pytest.raises(RequestError, match=message):
        make(**settings)


def test_more_rows_than_learned_positions_are_refused():
    with pytest.raises(RequestError, match=r"6 rows a clip, but model.video.transformer.max_rows=5"):
        make(positions="learned", max_rows=5)(torch.randn(1, 6, 8), torch.ones(1, 6, dtype=torch.bool))
