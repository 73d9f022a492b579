"""What a run says of its plan."""

from __future__ import annotations

from pathlib import Path

from preprocess.extraction import _amount
from preprocess.plan import Plan, Unit, UnitVideo


def plan(*streams: tuple[str, ...]) -> Plan:
    videos = tuple(UnitVideo(f"v{n}", Path("/v"), needed) for n, needed in enumerate(streams))
    return Plan((Unit(0, {}, videos),), {}, 0, 0)


def test_videos_and_streams_are_named_apart() -> None:
    assert _amount(plan(("a",), ("a",))) == "2 videos"
    assert _amount(plan(("a",))) == "1 video"
    assert _amount(plan(("a", "b"), ("a", "b"), ("a", "b"))) == "3 videos x 2 streams"
    assert _amount(plan(("a", "b"), ("b",))) == "2 videos, 3 times one of 2 streams"
