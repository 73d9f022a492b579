"""`train plan`: what a run would read and hold, from its config and the stores; nothing is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from shared.store import open_store, refuse_inside_store
from shared.window_table import WindowTable
from train.config import FitConfig
from train.data import WindowData
from train.delivery.arrays import BatchShape
from train.delivery.ring import slot_bytes
from train.delivery.sizing import available_cores, ring_slots, workers_for
from train.memory_plan import memory_lines, memory_plan
from train.order import BatchOrder
from train.sources import Sources, build_order, open_sources
from train.validation import validation_data

# Batches of the first epoch, evenly spaced, from which padding and reading are told.
_LOOKED_AT = 500


def plan(
    config: FitConfig, *, ranks: int, cores: int | None, memory: int | None = None, measured: bool = False
) -> dict[str, Any]:
    """Plain values, sizes in bytes. ranks: training processes, all on one host. cores: of that host, None for this one.

    memory: bytes that a rank has on its device, None for what is free here. measured: train a few steps, too, and tell
    what they took. Raises RequestError, EnvironmentLacking, StoreError and DamageFound as training would.
    """
    refuse_inside_store(config.run, "the run folder (run=PATH)")
    # Nothing is copied to the disk of this host for a plan.
    config = config.model_copy(update={"data": config.data.model_copy(update={"stage": None})})
    main = WindowData(
        open_store(config.store),
        config.set,
        config.train_split,
        stream=config.stream,
        config=config.data,
        embeddings=config.model.reads_embeddings,
    )
    validation_data(config)
    sources = open_sources(config, main)
    order = build_order(sources, config, ranks)
    first, cores = order.steps_before(1), cores or available_cores()
    shapes = sources.shapes(order, ranks)
    return {
        "sources": [_source(sources, number) for number in range(len(sources.datas))],
        "steps": config.total_steps(order),
        "steps_first_epoch": first,
        "left_out_first_epoch": order.left_out,
        "ranks": ranks,
        **_batches(config, shapes),
        "workers": {"configured": config.data.workers, "advised": workers_for(cores, ranks), "cores": cores},
        **_looked_at(sources, order, first),
        **memory_plan(config, main, sources, shapes, ranks=ranks, memory=memory, measured=measured),
    }


def _source(sources: Sources, number: int) -> dict[str, Any]:
    settings, data = sources.settings[number], sources.datas[number]
    return {
        "name": settings.name,
        "store": str(settings.store),
        "set": settings.set,
        "split": data.split,
        "windows": len(data),
        "videos": len(np.unique(data.windows.video_W)),
        "rows": int(data.windows.rows_W.sum()),
        "page_cache": data.most_bytes(rows_covered(data.windows)),
    }


def _batches(config: FitConfig, shapes: list[BatchShape]) -> dict[str, int]:
    """Of one rank: the largest batch, and the ring that holds it with those ahead."""
    slots = ring_slots(config.data.workers, config.data.prefetch)
    return {
        "batch": max(shape.bytes for shape in shapes),
        "ring_slots": slots,
        "ring": slots * max(map(slot_bytes, shapes)),
    }


def _looked_at(sources: Sources, order: BatchOrder, steps: int) -> dict[str, Any]:
    """Padding of rows and tokens, and what an epoch reads, told from some batches of the first."""
    numbers = np.unique(np.linspace(0, steps - 1, min(steps, _LOOKED_AT)).astype(np.int64))
    rows = rows_held = tokens = tokens_held = read = 0
    for step in numbers.tolist():
        selection = order.batch(step)
        data = sources.datas[selection.source]
        shape = data.shape_of(selection)
        some = int(np.minimum(data.windows.rows_W[selection.window_B], shape.rows).sum())
        rows, rows_held, read = rows + some, rows_held + shape.clips * shape.rows, read + some * data.row_bytes
        tokens += int(_tokens(data, data.captions(selection.window_B, selection.choice_BK), shape.tokens))
        tokens_held += shape.clips * shape.candidates * shape.tokens
    return {
        "read_per_epoch": read * steps // len(numbers),
        "padding": {"rows": 1 - rows / rows_held, "tokens": 1 - tokens / tokens_held, "batches": len(numbers)},
    }


def _tokens(data: WindowData, caption_BK: np.ndarray, longest: int) -> np.integer[Any]:
    offsets, present_N = data.manifest.token_offsets, caption_BK[caption_BK >= 0]
    count: np.integer[Any] = np.minimum(offsets[present_N + 1] - offsets[present_N], longest).sum()
    return count


def rows_covered(table: WindowTable) -> int:
    """Rows that any window of the table has, each counted once."""
    first_W, end_W = table.first_row_W, table.first_row_W + table.rows_W
    # Videos one after another on one line, so far apart that they do not touch.
    base_W = table.video_W.astype(np.int64) * (int(end_W.max()) + 1)
    order_W = np.argsort(base_W + first_W, kind="stable")
    start_W, end_W = (base_W + first_W)[order_W], (base_W + end_W)[order_W]
    reached_W = np.concatenate([[0], np.maximum.accumulate(end_W)[:-1]])
    return int(np.maximum(0, end_W - np.maximum(start_W, reached_W)).sum())


def lines(found: dict[str, Any]) -> str:
    """The plan for a terminal."""
    workers, padding, ranks = found["workers"], found["padding"], found["ranks"]
    mib = 1 / (1 << 20)
    return "\n".join(
        [
            *(
                f"store      {one['store']}, set {one['set']}, split {one['split']}: {one['windows']:,} windows of "
                f"{one['videos']:,} videos; {one['page_cache'] * mib:,.0f} MiB of rows, best held in the page cache"
                for one in found["sources"]
            ),
            f"steps      {found['steps']:,}, {found['steps_first_epoch']:,} of them in the first epoch "
            f"({found['left_out_first_epoch']:,} samples left out)",
            f"reading    {found['read_per_epoch'] * mib:,.0f} MiB of rows an epoch",
            f"batch      up to {found['batch'] * mib:,.1f} MiB on each of {ranks} rank(s)",
            f"ring       {found['ring_slots']} batches, {found['ring'] * mib:,.1f} MiB a rank",
            f"workers    data.workers={workers['configured']}; at most {workers['advised']} a rank suit "
            f"{workers['cores']} cores and {ranks} rank(s) on one host",
            f"padding    {padding['rows']:.1%} of the rows, {padding['tokens']:.1%} of the tokens "
            f"({padding['batches']:,} batches of the first epoch looked at)",
            *memory_lines(found),
        ]
    )
