"""What is counted against what tensors really hold, to the byte, and what is estimated against what was measured."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.testing._internal.distributed.fake_pg import FakeStore

from train.batch import Batch
from train.config import FitConfig
from train.delivery.arrays import BatchShape
from train.distributed import ALONE
from train.loss_memory import entry_of
from train.losses import LOSSES, Loss, Teacher
from train.memory import plan_memory, tensor_bytes
from train.model import TokenSpec, build_model
from train.negatives import BankConfig, build_negatives
from train.negatives.fresh import Fresh
from train.optim import build_optimizer, parameter_groups
from train.step import TrainStep
from train.tensor_peak import TensorPeak

CLIPS, ROWS, CHANNELS, CANDIDATES, TOKENS = 6, 3, 5, 2, 4
SHAPE = BatchShape(CLIPS, ROWS, CHANNELS, CANDIDATES, TOKENS, "float32")
VIDEOS = 40
CPU = torch.device("cpu")
SMALL = {"dim": 8, "video": {"layer_norm": True}, "text": {"name": "words", "word_dim": 6, "hidden": 16}}


def make_config(**sections) -> FitConfig:
    return FitConfig(
        store="s", run="r", steps=10, batch_size=CLIPS, model=SMALL | sections.pop("model", {}), **sections
    )


def make_model(config: FitConfig):
    torch.manual_seed(1)
    return build_model(config.model, input_dim=CHANNELS, tokens=TokenSpec(vocab_size=30, pad_id=0, max_tokens=TOKENS))


def planned(config: FitConfig, model, *, ranks: int = 1, device=CPU, shapes=(SHAPE,)):
    return plan_memory(config, model, ranks=ranks, device=device, shapes=shapes, videos=VIDEOS, teacher=0)


def make_batch() -> Batch:
    return Batch(
        torch.randn(CLIPS, ROWS, CHANNELS),
        torch.ones(CLIPS, ROWS, dtype=torch.bool),
        torch.randint(1, 30, (CLIPS, CANDIDATES, TOKENS)),
        torch.ones(CLIPS, CANDIDATES, TOKENS, dtype=torch.bool),
        torch.ones(CLIPS, CANDIDATES, dtype=torch.bool),
        torch.arange(CLIPS),
    )


def tensors_in(content: object) -> int:
    if isinstance(content, torch.Tensor):
        return tensor_bytes([content])
    values = content.values() if isinstance(content, dict) else ()
    return sum(map(tensors_in, values))


@pytest.mark.parametrize("optim", [{}, {"name": "sgd"}, {"name": "sgd", "momentum": 0.0}, {"freeze": ["text.words.*"]}])
@pytest.mark.parametrize(
    "negatives", [None, {"name": "moco", "size": 7}, {"name": "queue", "size": 7}, {"name": "bank"}]
)
def test_counted_is_what_the_tensors_hold(optim, negatives):
    config = make_config(optim=optim, negatives=negatives)
    model = make_model(config)
    optimizer = build_optimizer(model, config.optim)
    remembered = build_negatives(config.negatives, model, ALONE, videos=VIDEOS, seed=0)
    step = TrainStep(
        model, optimizer, Loss(config.loss), ALONE, factor=lambda _: 1.0, clip=1.0, total_steps=10, negatives=remembered
    )
    found = planned(config, model)
    step(make_batch(), 0)
    assert found.parameters == tensor_bytes(model.state_dict().values())
    assert found.frozen == tensor_bytes(p for p in model.parameters() if not p.requires_grad)
    assert found.gradients == tensor_bytes(p.grad for p in model.parameters() if p.grad is not None)
    assert found.optimizer == tensors_in(optimizer.state)
    if remembered is not None:
        state = remembered.state_dict()
        assert found.negatives.held == tensors_in(state["memory"])
        # The buffers of the copy are in no checkpoint: they are the model's.
        assert found.keys == (0 if state["keys"] is None else tensors_in(state["keys"]) + tensor_bytes(model.buffers()))


def test_each_part_is_in_the_total_once():
    found = planned(make_config(negatives={"name": "moco", "size": 7}), make_model(make_config()))
    parts = [found.parameters, found.gradients, found.optimizer, found.keys, found.batches, *found.negatives]
    assert found.total == sum(parts) + max(found.logits, found.update)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_share_of_the_rank_with_the_most_state(ranks):
    config = make_config(shard=1, optim={"groups": [{"pattern": "text.*", "scale": 0.1}]})
    model = make_model(config)
    groups = parameter_groups(model, config.optim, 0.1)
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        of_ranks = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, lr=0.1)._partition_parameters()
    finally:
        dist.destroy_process_group()
    states = [sum(2 * tensor_bytes([p]) + 4 for group in groups for p in group["params"]) for groups in of_ranks]
    assert planned(config, model, ranks=ranks).optimizer == max(states)
    whole = planned(config, model).optimizer
    assert max(states) < whole == sum(states)


def test_a_gpu_holds_a_batch_and_a_host_the_ring():
    config = make_config(data={"prefetch": 3})
    model = make_model(config)
    assert planned(config, model, device=torch.device("cuda")).batches == SHAPE.bytes
    assert 5 * SHAPE.bytes < planned(config, model).batches < 7 * SHAPE.bytes + 7 * 4096


def fill(remembered, model, ids_N: torch.Tensor) -> None:
    vector_ND = torch.nn.functional.normalize(torch.randn(len(ids_N), model.dim), dim=-1)
    mask_N1 = torch.ones(len(ids_N), 1, dtype=torch.bool)
    remembered.after_step(Fresh(vector_ND, vector_ND[:, None], mask_N1, ids_N), model)


def peak_of_loss(config: FitConfig, clips: int, candidates: int, dim: int) -> int:
    """Bytes that forward and backward of the loss take beside its inputs."""
    video_BD, text_BKD = torch.randn(clips, dim).requires_grad_(), torch.randn(clips, candidates, dim).requires_grad_()
    mask_BK, ids_B = torch.ones(clips, candidates, dtype=torch.bool), torch.arange(clips)
    teacher = Teacher(video_BD.detach(), text_BKD.detach(), torch.tensor(0.1))
    bias = torch.tensor(-10.0) if config.loss.name == "sigmoid" else None
    with TensorPeak() as tensors:
        Loss(config.loss)(video_BD, text_BKD, mask_BK, ids_B, temperature=0.1, bias=bias, teacher=teacher).backward()
    return tensors.peak


@pytest.mark.parametrize("tile", ["auto", 0])
@pytest.mark.parametrize("name", LOSSES)
def test_the_logits_of_a_loss_are_no_less_than_planned_and_not_much_more(name, tile):
    """1 dimension, so that the logits are nearly all there is."""
    extra = {"teacher": "t"} if name == "distill" else {}
    config = make_config(
        loss={"name": name, "tile": tile, **extra}, model={"dim": 1, "logit_bias": -10.0 if name == "sigmoid" else None}
    )
    clips = 1500 if tile == "auto" else 400
    shape = BatchShape(clips, ROWS, CHANNELS, 2, TOKENS, "float32")
    measured, found = peak_of_loss(config, clips, 2, 1), planned(config, make_model(config), shapes=[shape]).logits
    assert 0.6 * found < measured <= found


def peak_with(config: FitConfig, sizes: tuple[int, int]) -> list[tuple[int, int]]:
    """Bytes that a step takes with so many entries, and what is planned for these."""
    found = []
    for size in sizes:
        negatives = config.negatives.model_copy(update={"size": size})
        model = make_model(config)
        remembered = build_negatives(negatives, model, ALONE, videos=100_000, seed=0)
        optimizer = build_optimizer(model, config.optim)
        step = TrainStep(
            model,
            optimizer,
            Loss(config.loss),
            ALONE,
            factor=lambda _: 1.0,
            clip=1.0,
            total_steps=9,
            negatives=remembered,
        )
        is_bank = isinstance(negatives, BankConfig)
        fill(remembered, model, torch.arange(100_000) if is_bank else 100_000 + torch.arange(size))
        step(make_batch(), 0)
        optimizer.zero_grad(set_to_none=True)
        with TensorPeak() as tensors:
            step(make_batch(), 1)
        entry = entry_of(config, model, [SHAPE], size, CPU)
        found.append((tensors.peak, size * (entry.total if is_bank else entry.compared)))
    return found


@pytest.mark.parametrize(
    ("kind", "loss", "tile"),
    [
        pytest.param("queue", "mil_nce", "auto", marks=pytest.mark.full),
        ("queue", "mil_nce", 0),
        pytest.param("queue", "dual_softmax", 64, marks=pytest.mark.full),
        ("queue", "dual_softmax", 0),
        ("queue", "sigmoid", 64),
        ("moco", "mil_nce", 64),
    ],
)
def test_what_an_entry_takes_in_a_step_is_no_more_than_planned(kind, loss, tile):
    """Where matrices are cut into tiles, that is the rule of the largest queue."""
    bias = -10.0 if loss == "sigmoid" else None
    config = make_config(
        negatives={"name": kind, "size": 1},
        loss={"name": loss, "tile": tile},
        model={"dim": 64, "logit_bias": bias},
    )
    few, many = peak_with(config, (60_000, 90_000) if tile == "auto" else (1_000, 3_000))
    measured, planned_more = many[0] - few[0], many[1] - few[1]
    assert measured <= planned_more
    if tile != 0:
        assert measured > 0.9 * planned_more


@pytest.mark.full
def test_a_bank_takes_no_more_than_planned():
    config = make_config(negatives={"name": "bank", "size": 1}, model={"dim": 64})
    few, many = peak_with(config, (60_000, 90_000))
    assert 0.9 * (many[1] - few[1]) < many[0] - few[0] <= many[1] - few[1]
