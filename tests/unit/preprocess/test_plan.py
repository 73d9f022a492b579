from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from preprocess.inputs import InputVideo
from preprocess.plan import Home, default_shard_videos, make_plan
from shared.schema import Source, StreamEntry

SOURCE = Source(bytes=1, xxh3="ab")


def entry(fingerprint: str = "aa") -> StreamEntry:
    return StreamEntry(
        kind="features", fingerprint=fingerprint, identity={}, container="npy", dtype="float16", row_shape=(4,)
    )


def inputs(count: int) -> list[InputVideo]:
    return [InputVideo(f"v{n}", Path(f"/v{n}"), None, None, {}) for n in range(count)]


def plan_of(count: int, homes: dict[str, dict[str, Home]], **options: object):
    streams = {name: entry() for name in homes}
    return make_plan(inputs(count), streams, homes, lambda _: SOURCE, shard_videos=3, **options)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, 5)))
def test_after_any_kill_the_remaining_units_are_what_they_would_have_been(committed: set[int]) -> None:
    whole = plan_of(17, {"s": {}})
    done = {v.video_id: Home("x", SOURCE, None) for u in whole.units if u.number in committed for v in u.videos}
    rest = plan_of(17, {"s": done})
    assert rest.units == tuple(unit for unit in whole.units if unit.number not in committed)


def test_appended_inputs_leave_earlier_units_alone() -> None:
    before = plan_of(7, {"s": {}})
    home = {v.video_id: Home("x", SOURCE, None) for u in before.units for v in u.videos}
    after = plan_of(10, {"s": home})
    assert [v.video_id for u in after.units for v in u.videos] == ["v7", "v8", "v9"]


def test_reasons() -> None:
    home = {
        "v0": Home("x", SOURCE, None),
        "v1": Home("x", Source(bytes=2, xxh3="cd"), None),
        "v2": Home("x", SOURCE, "timeout"),
        "v3": Home("x", SOURCE, "corrupt"),
    }
    plan = plan_of(5, {"s": home}, retry=lambda stream, video_id, reason: reason == "timeout")
    assert plan.reasons == {"new": 1, "input changed": 1, "failed before": 1}
    assert (plan.done, plan.whole) == (2, 2)


def test_only_the_streams_that_lack_a_video_get_it() -> None:
    plan = plan_of(2, {"a": {"v0": Home("x", SOURCE, None)}, "b": {}})
    assert [(v.video_id, v.streams) for v in plan.units[0].videos] == [("v0", ("b",)), ("v1", ("a", "b"))]
    assert plan.units[0].streams == ("a", "b")
    assert (plan.done, plan.whole) == (1, 0), "a video that lacks one stream is not whole"


def test_units_name_what_they_are_for() -> None:
    ids = {make_plan(inputs(3), {"s": entry(f)}, {"s": {}}, lambda _: SOURCE).units[0].ids["s"] for f in ("aa", "bb")}
    assert len(ids) == 2


def test_a_stream_gets_the_same_unit_whichever_streams_are_made_along_with_it() -> None:
    done = {f"v{n}": Home("x", SOURCE, None) for n in range(3)}
    both, alone = plan_of(3, {"a": {}, "b": {}}), plan_of(3, {"a": done, "b": {}})
    assert both.units[0].ids["b"] == alone.units[0].ids["b"]
    assert alone.units[0].streams == ("b",)


def test_shard_sizes() -> None:
    assert [default_shard_videos(n) for n in (1, 32, 320, 10**6)] == [8, 8, 20, 1024]


def test_rows_outlive_a_file_that_cannot_be_read() -> None:
    homes = {"v0": Home("x", SOURCE, None), "v1": Home("x", None, "missing_file"), "v2": Home("x", SOURCE, "corrupt")}
    plan = make_plan(inputs(3), {"s": entry()}, {"s": homes}, lambda _: None)
    assert [v.video_id for unit in plan.units for v in unit.videos] == ["v2"]
    assert plan.absent == ("v0",)


def test_removed_videos_keep_their_place_and_get_no_rows() -> None:
    plan = plan_of(7, {"s": {}}, removed={"v1", "v6"})
    assert [[v.video_id for v in unit.videos] for unit in plan.units] == [["v0", "v2"], ["v3", "v4", "v5"]]
    assert plan_of(7, {"s": {"v1": Home("x", Source(bytes=9, xxh3="99"), None)}}, removed={"v1"}).reasons == {"new": 6}


def test_a_shard_that_lost_rows_is_made_again_but_for_what_nothing_could_make() -> None:
    whole = plan_of(6, {"s": {}})
    home = {
        "v0": Home("x", SOURCE, None),
        "v1": Home("x", SOURCE, "damaged"),
        "v2": Home("x", SOURCE, "corrupt"),
        **{f"v{n}": Home("y", SOURCE, None) for n in range(3, 6)},
    }
    plan = plan_of(6, {"s": home})
    assert plan.units == whole.units[:1], "the very unit that made it"
    assert (plan.reasons, plan.done) == ({"damaged": 3}, 3)
    absent = make_plan(
        inputs(6), {"s": entry()}, {"s": home}, lambda v: None if v.video_id == "v0" else SOURCE, shard_videos=3
    )
    assert [v.video_id for v in absent.units[0].videos] == ["v1", "v2"]
    assert absent.absent == ("v0",)
