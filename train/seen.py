"""What a checkpoint saw and what stands there now, in words: no fingerprint tells a person anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from shared.stream_identity import settled
from train.checkpoint import differences
from train.sources import MAIN, Source, Sources

_HASH = re.compile(r"'[0-9a-f]{16,}'")


def in_words(changed: Sequence[str]) -> list[str]:
    """Lines of `differences`, those that people can read first; of a hash no more than its key."""
    hashed = [line.partition(":")[0] for line in changed if _HASH.search(line)]
    return [line for line in changed if not _HASH.search(line)] + [f"{key}: other content" for key in hashed]


def streams(before: dict[str, Any], now: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to compare of the stream trained on and of today's: nothing where rows are of one kind.

    before, now: `fingerprint`, `identity`. Their identities without what leaves rows as they are; the fingerprints, for
    checkpoints that have no identity.
    """
    if before["fingerprint"] == now["fingerprint"]:
        return {}, {}
    if "identity" not in before:
        return {"stream": before["fingerprint"]}, {"stream": now["fingerprint"]}
    return {"stream": settled(before["identity"])}, {"stream": settled(now["identity"])}


def input_dims(content: dict[str, Any]) -> tuple[int, ...]:
    """Channels of a row of each stream that a checkpoint was trained on; older ones know of one stream alone."""
    further = [int(kind["dim"]) for kind in content.get("further_streams", [])]
    return int(content["input_dim"]) - sum(further), *further


def changed_data(content: dict[str, Any], identity: dict[str, Any], sources: Sources, *, told: bool) -> list[str]:
    """What differs between the data of a checkpoint and today's; empty where nothing does.

    identity: of today's order. told: whether another configuration, of which the order is made too, is told already.
    """
    changed = differences(content["order"]["identity"], identity)
    if not changed:
        return []
    found = list(_by_source(content, identity, sources))
    return found if found or told else in_words(changed)


def _by_source(content: dict[str, Any], identity: dict[str, Any], sources: Sources) -> Iterator[str]:
    before = content["order"]["identity"]
    # A source that only one of both has is a matter of the configuration.
    for source in sources.settings:
        old, new = _of_source(before, source), _of_source(identity, source)
        if old is not None and new is not None:
            yield from _changed_source(old, new, source)
    data = sources.datas[0]
    had, has = list(input_dims(content)), list(data.input_dims)
    if had != has:
        yield f"channels of a row: the run saw {had}, {sources.settings[0].store} has {has}"
    kind = {"fingerprint": data.stream.fingerprint, "identity": data.stream.entry.identity}
    if "identity" in content["stream"]:
        yield from in_words(differences(*streams(content["stream"], kind)))


def _of_source(identity: dict[str, Any], source: Source) -> dict[str, Any] | None:
    """A source's part of an order's identity; of one store alone, it is the whole."""
    if "sources" in identity:
        found: dict[str, Any] | None = identity["sources"].get(source.name)
        return found
    return identity if source.name == MAIN else None


def _changed_source(old: dict[str, Any], new: dict[str, Any], source: Source) -> Iterator[str]:
    which = f"{source.where}store={source.store}"
    if old["stream"] != new["stream"]:
        yield f"{which}: its stream was made by another extractor, or another setting of it, than the rows seen"
    # Another split of it is a matter of the configuration.
    if old["set"] != new["set"] or (old["split"] == new["split"] and old["windows"] != new["windows"]):
        counts = [f"{one['windows']:,} windows" for one in (old, new)]
        yield (
            f"{which}: set {source.set!r} holds other windows or captions than the one that the run began with"
            + (f" ({counts[0]} then, {counts[1]} now)" if counts[0] != counts[1] else "")
        )
    if old.get("also") != new.get("also"):
        yield f"{which}: its further streams (data.also) are others, or hold other rows, than those seen"
    if old.get("embeddings") != new.get("embeddings"):
        yield f"{which}: its captions' embeddings are of another encoder than those seen"
        yield from in_words(differences(old.get("embeddings"), new.get("embeddings"), "embeddings"))
