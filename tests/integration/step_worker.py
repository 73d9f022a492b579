"""One rank of test_step_equality: takes train's own step on its part of given global batches and saves what came out.

Run plainly for one process, or by torchrun for several:  step_worker.py CASES.json TINY_BERT_FOLDER OUTPUT_FOLDER
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from pydantic import BaseModel

import train.losses.grid
import train.losses.pairs
import train.optim
import train.step
from train.accumulation import Cached
from train.batch import Batch
from train.distributed import World, distributed_world, gather_plain
from train.losses import LOSSES, Beyond, Loss, LossConfig, mil_nce
from train.losses.pairs import make_pairs
from train.losses.reductions import LogSums
from train.model import ModelConfig, TokenSpec, TwoTower, build_model
from train.negatives import Negatives, NegativesConfig, build_negatives
from train.negatives.fresh import Fresh
from train.negatives.keys import KeyTowers
from train.negatives.queue import Queue, Ring
from train.optim import OptimConfig, build_optimizer
from train.sharded_state import held, whole
from train.sharded_towers import ShardedTowers
from train.sharding import Shard, shards_towers
from train.teacher import TeacherTowers
from train.towers import DdpConfig

CLIPS, ROWS, CHANNELS, CANDIDATES, TOKENS, VOCABULARY = 12, 5, 6, 4, 7, 40
FIRST_ID, VIDEOS = 50, 70
STEPS = 3


class Case(BaseModel):
    model: ModelConfig
    loss: LossConfig
    negatives: NegativesConfig | None = None
    optim: OptimConfig
    micro_batches: int = 1
    ddp: DdpConfig = DdpConfig()
    shard: Shard = "none"
    idle: bool = False  # a parameter that learns but that nothing depends on
    # Clips that the last rank's video tower can take at a time, in its forward and in its backward.
    fits: int | None = None
    fits_back: int | None = None
    fault: str | None = None


def main() -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    cases, bert, output = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], Path(sys.argv[3])
    with distributed_world("cpu", timeout_s=60) as world:
        results = {}
        for name, text in cases.items():
            results[name] = run_case(Case.model_validate_json(text.replace("TINY_BERT", bert)), world)
        torch.save(results, output / f"world{world.size}-rank{world.rank}.pt")


def run_case(case: Case, world: World) -> dict[str, Any]:
    torch.manual_seed(7)
    tokens = TokenSpec(vocab_size=VOCABULARY, pad_id=0, max_tokens=TOKENS)
    model = build_model(case.model, input_dim=CHANNELS, tokens=tokens).double()
    if case.idle:
        model.video.idle = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    varies = case.ddp.find_unused_parameters is True
    sharded = ShardedTowers(model, world, case.shard, varies=varies) if shards_towers(case.shard, world.size) else None
    optimizer = build_optimizer(model, case.optim, sharded=case.shard == 1 and world.size > 1)
    for place, name, sound in SOUND:
        setattr(place, name, FAULTY.get((case.fault or "", name), sound))
    LOSSES["mil_nce"] = mean_of_log_probabilities if case.fault == "mean of log-probabilities" else mil_nce
    memory = build_negatives(case.negatives, model, world, videos=VIDEOS, seed=3)
    teacher = TeacherTowers(model_of_a_teacher(case.model, tokens), "", world) if case.loss.name == "distill" else None
    step = train.step.TrainStep(
        model,
        optimizer,
        Loss(case.loss, seed=5),
        world,
        factor=lambda index: 1 / (index + 1),
        clip=case.optim.clip,
        total_steps=STEPS,
        negatives=memory,
        teacher=teacher,
        micro_batches=case.micro_batches,
        ddp=case.ddp,
        sharded=sharded,
    )
    if case.fits is not None and world.rank == world.size - 1:
        model.video.register_forward_hook(partial(run_out_of_memory, fits=case.fits))
    if case.fits_back is not None and world.rank == world.size - 1:
        model.video.projection.register_forward_hook(partial(run_out_in_the_backward, fits=case.fits_back))
    if case.fault == "temperature counted per rank":
        model.temperature.log_value.register_hook(lambda gradient: gradient * world.size)
    records = []
    for index in range(STEPS):
        result = step(local_part(global_batch(index), world), index)
        gradients = {n: whole(p.grad, world).clone() for n, p in model.named_parameters() if p.grad is not None}
        remembered = {} if memory is None else copy.deepcopy(flat(memory.state_dict()))
        parts = step.micro_batches.number
        # What is said of this rank alone is another thing on every rank.
        said = {key: value for key, value in vars(result).items() if key not in ("own_loss", "directions_2D")}
        records.append({"result": said, "gradients": gradients, "remembered": remembered, "parts": parts})
    weights = {name: whole(weight, world) for name, weight in model.state_dict().items()}
    return {"steps": records, "weights": weights}


def run_out_of_memory(_module: Any, _inputs: Any, output: torch.Tensor, *, fits: int) -> None:
    """Only with a graph, so that the second pass of a step is where it happens, too."""
    if output.requires_grad and len(output) > fits:
        raise torch.OutOfMemoryError(f"injected: {len(output)} clips")


def run_out_in_the_backward(_module: Any, _inputs: Any, output: torch.Tensor, *, fits: int) -> None:
    """When some gradients of the tower are there."""

    def raise_now(_gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError(f"injected: {len(output)} clips")

    if output.requires_grad and len(output) > fits:
        output.register_hook(raise_now)


def model_of_a_teacher(config: ModelConfig, tokens: TokenSpec) -> TwoTower:
    """Wider than the model, and of other weights."""
    torch.manual_seed(11)
    return build_model(config.model_copy(update={"dim": 10}), input_dim=CHANNELS, tokens=tokens).double()


def flat(content: dict[str, Any], above: str = "") -> dict[str, torch.Tensor]:
    """The tensors of nested dictionaries, by their path."""
    found = {}
    for name, value in content.items():
        if isinstance(value, dict):
            found |= flat(value, f"{above}{name}.")
        elif isinstance(value, torch.Tensor):
            found[above + name] = value
    return found


def global_batch(index: int) -> Batch:
    """Ragged: rows differ, bags differ (one is empty, the first third has at most two), two clips share a video.

    In the last batch nobody in the first half has a caption, so a rank may hold none at all.
    """
    draw = torch.Generator().manual_seed(100 + index)
    bags = torch.randint(0, CANDIDATES + 1, (CLIPS,), generator=draw)
    bags[: CLIPS // 3] = bags[: CLIPS // 3].clamp(max=2)
    bags[1], bags[-1] = 0, CANDIDATES
    if index == STEPS - 1:
        bags[: CLIPS // 2] = 0
    rows = torch.randint(1, ROWS + 1, (CLIPS,), generator=draw)
    words = torch.randint(1, TOKENS + 1, (CLIPS, CANDIDATES), generator=draw)
    tokens = torch.randint(1, VOCABULARY, (CLIPS, CANDIDATES, TOKENS), generator=draw)
    mask = torch.arange(TOKENS) < words[..., None]
    ids = torch.arange(CLIPS) + FIRST_ID
    ids[CLIPS - 2] = ids[0]
    return Batch(
        video_BTD=torch.randn(CLIPS, ROWS, CHANNELS, generator=draw, dtype=torch.float64),
        video_mask_BT=torch.arange(ROWS) < rows[:, None],
        tokens_BKL=torch.where(mask, tokens, 0),
        token_mask_BKL=mask,
        caption_mask_BK=torch.arange(CANDIDATES) < bags[:, None],
        video_ids_B=ids,
    )


def local_part(whole: Batch, world: World) -> Batch:
    """This rank's contiguous clips, no wider than its own widest bag, as a collate function would cut it."""
    size = CLIPS // world.size
    own = slice(world.rank * size, (world.rank + 1) * size)
    widest = int(whole.caption_mask_BK[own].sum(1).max())
    return Batch(
        whole.video_BTD[own],
        whole.video_mask_BT[own],
        whole.tokens_BKL[own, :widest],
        whole.token_mask_BKL[own, :widest],
        whole.caption_mask_BK[own, :widest],
        whole.video_ids_B[own],
    )


def gather_with_own_gradient_only(x: torch.Tensor, world: World) -> torch.Tensor:
    """Planted: others' rows are constants; only the own rows, put back in place, carry a gradient."""
    parts = list(gather_plain(x, world).split(x.shape[0]))
    parts[world.rank] = x
    return torch.cat(parts)


def gather_without_gradient(x: torch.Tensor, world: World) -> torch.Tensor:
    """Planted: nothing carries a gradient. The zero keeps the graph alive, or DDP would report it by itself."""
    return gather_plain(x, world) + 0 * x.sum()


class _SliceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, world: World) -> torch.Tensor:
        ctx.own = slice(world.rank * x.shape[0], (world.rank + 1) * x.shape[0])
        parts = [torch.empty_like(x) for _ in range(world.size)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0][ctx.own], None


def gather_slicing_backward(x: torch.Tensor, world: World) -> torch.Tensor:
    """Planted: no reduce in the backward, so the towers get 1/W of their gradient."""
    return _SliceOnly.apply(x, world) if world.size > 1 else x


def own_rows_only(x: torch.Tensor, world: World) -> torch.Tensor:
    """Planted: what a text sums over the clips of this rank is taken for the sum over all."""
    return x


def blocks_without_the_edge(length: int, size: int) -> Iterator[slice]:
    """Planted: what does not fill a tile is left out, unless nothing else is there."""
    every = list(SOUND_BLOCKS(length, size))
    yield from [block for block in every if block.stop - block.start == size] or every


def mean_of_log_probabilities(
    video_BD: torch.Tensor,
    text_NKD: torch.Tensor,
    mask_NK: torch.Tensor,
    ids_N: torch.Tensor,
    *,
    temperature: torch.Tensor | float,
    mask_same_video: bool,
    world: World,
    **others: Any,
) -> torch.Tensor:
    """Planted: every candidate must fit by itself, as one widely copied snippet has it."""
    options = {"tile": 0, "clamp_gradient": None, "mask_same_video": mask_same_video}
    pairs = make_pairs(video_BD, text_NKD, mask_NK, ids_N, temperature=temperature, world=world, **options)
    rows_B, texts_M, own_BK = pairs.log_sums(LogSums(), with_own=False)
    negative_B = torch.logaddexp(rows_B, pairs.over_bag(pairs.own_bags(texts_M)))
    denominator_B = torch.logaddexp(negative_B, pairs.over_bag(own_BK))
    bags_B = pairs.own_mask.sum(dim=1).clamp(min=1)
    mean_B = torch.where(pairs.own_mask, own_BK, torch.zeros_like(own_BK)).sum(dim=1) / bags_B
    return pairs.mean(denominator_B - mean_B)


def fresh_in_another_rank_order(fresh: Fresh, world: World) -> Fresh:
    """Planted: the last rank's clips come first."""
    return Fresh(*(torch.cat(x.chunk(world.size)[::-1]) for x in fresh))


def fresh_of_own_clips(fresh: Fresh, world: World) -> Fresh:
    """Planted: every rank remembers its own clips."""
    return Fresh(*(x.chunk(world.size)[world.rank] for x in fresh))


def spoiled_fresh(spoil: Callable[[Fresh, World], Fresh]) -> Callable[..., Fresh]:
    return lambda self, *arguments: spoil(SOUND_FRESH(self, *arguments), self._world)


def draw_under_no_name(self: Queue, step: int) -> Beyond:
    """Planted: nobody knows which video an entry is of, so a clip's own one is a negative of it."""
    beyond = SOUND_DRAW(self, step)
    return beyond._replace(
        video_ids_Q=torch.full_like(beyond.video_ids_Q, -1), text_ids_P=torch.full_like(beyond.text_ids_P, -1)
    )


def whole_ring(self: Ring) -> tuple[torch.Tensor, torch.Tensor]:
    """Planted: places that nothing was ever put into count as entries."""
    return self._vector_QD, self._ids_Q


def follow_before_the_weights_move(self: KeyTowers, model: TwoTower) -> None:
    """Planted: the key towers follow before the optimiser's step, so they are one step behind."""
    SOUND_FOLLOW(self, getattr(self, "seen_before", self._towers))
    self.seen_before = copy.deepcopy(model)


def left_on_every_rank(self: ShardedTowers) -> None:
    """Planted: what is not spread keeps the gradient of its own rank."""


def norm_of_own_share(parameters: list[torch.Tensor], world: World) -> torch.Tensor:
    """Planted: each rank clips by the norm of what it holds."""
    return SOUND_NORM([held(parameter) for parameter in parameters], world)


def shared_in_every_part(self: Cached, rows: slice, is_last: bool) -> list[torch.Tensor | None]:
    """Planted: each micro-batch counts the temperature's gradient of the whole batch."""
    return SOUND_GRADIENTS(self, rows, True)


def first_part_again(self: Cached, rows: slice, is_last: bool) -> list[torch.Tensor | None]:
    """Planted: every micro-batch gets the gradients of the first rows."""
    return SOUND_GRADIENTS(self, slice(0, rows.stop - rows.start), is_last)


SOUND_GRADIENTS = Cached._gradients
SOUND_FRESH, SOUND_DRAW, SOUND_FOLLOW = Negatives._fresh, Queue.draw, KeyTowers.follow
SOUND_BLOCKS = train.losses.grid.blocks
SOUND_NORM = train.optim.gradient_norm
SOUND = [
    (train.step, "gather_rows", train.step.gather_rows),
    (train.losses.pairs, "logsumexp_over_ranks", train.losses.pairs.logsumexp_over_ranks),
    (train.losses.grid, "blocks", SOUND_BLOCKS),
    (Cached, "_gradients", SOUND_GRADIENTS),
    (Negatives, "_fresh", SOUND_FRESH),
    (Queue, "draw", SOUND_DRAW),
    (Ring, "content", Ring.content),
    (KeyTowers, "follow", SOUND_FOLLOW),
    (ShardedTowers, "average", ShardedTowers.average),
    (train.optim, "gradient_norm", SOUND_NORM),
]
FAULTY = {
    ("gather without gradient", "gather_rows"): gather_without_gradient,
    ("gather with own gradient only", "gather_rows"): gather_with_own_gradient_only,
    ("gather backward only slices", "gather_rows"): gather_slicing_backward,
    ("columns without the other ranks", "logsumexp_over_ranks"): own_rows_only,
    ("a tile's edge left out", "blocks"): blocks_without_the_edge,
    ("temperature counted per micro-batch", "_gradients"): shared_in_every_part,
    ("gradients of other clips", "_gradients"): first_part_again,
    ("queue in another rank order", "_fresh"): spoiled_fresh(fresh_in_another_rank_order),
    ("queue of own clips", "_fresh"): spoiled_fresh(fresh_of_own_clips),
    ("own video in the queue", "draw"): draw_under_no_name,
    ("empty part of the queue", "content"): whole_ring,
    ("keys follow too early", "follow"): follow_before_the_weights_move,
    ("temperature of each rank", "average"): left_on_every_rank,
    ("norm of own share", "gradient_norm"): norm_of_own_share,
}

if __name__ == "__main__":
    main()
