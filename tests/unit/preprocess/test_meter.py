"""Where the time goes: stages that nest, sums, and the advice on synthetic counters."""

from __future__ import annotations

from contextlib import suppress

import pytest

from preprocess.meter import Setting, Spent, Stopwatch, advice


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_inner_stages_time_is_not_the_outer_ones() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now = 1
    with watch.during("model"):
        clock.now = 4
        with watch.during("writing"):
            clock.now = 6
        clock.now = 7
    with suppress(OSError), watch.during("waiting"):
        clock.now = 17
        raise OSError("what a stage raises ends it")
    clock.now = 18
    assert watch.spent() == Spent(waiting_s=10, model_s=4, writing_s=2, elapsed_s=18)
    clock.now = 20
    assert watch.spent().elapsed_s == 20


def test_sums_and_shares() -> None:
    one = Spent(videos=1, rows=3, video_s=60, waiting_s=3, model_s=1, elapsed_s=5, decode_cpu_s=2)
    two = one + one
    assert (two.videos, two.rows, two.video_s, two.decode_cpu_s) == (2, 6, 120, 4)
    assert (two.share(two.waiting_s), Spent().share(1)) == (0.6, 0)
    assert (two.slowest, Spent().slowest) == ("decoding", None)


RAY = Setting("ray", "cpu", 2, False)
WAITING = Spent(rows=9, waiting_s=62, model_s=30, writing_s=5, elapsed_s=100, decode_cpu_s=180)
COMPUTING = Spent(rows=9, waiting_s=30, model_s=62, writing_s=5, elapsed_s=100)
WRITING = Spent(rows=9, waiting_s=30, model_s=5, writing_s=62, elapsed_s=100)


@pytest.mark.parametrize(
    ("spent", "setting", "words"),
    [
        (WAITING, RAY, "extractors waited 62% of the time for frames: decoding is the slowest stage; add CPUs (ray"),
        (WAITING, Setting("ray", "cuda", 8, False), "only 1.8 of 8 CPUs busy: let them work further ahead"),
        (WAITING, Setting("ray", "cuda", None, False), "add CPUs to the cluster (decoders kept 1.8 busy)"),
        (WAITING, Setting("here", "cpu", 2, False), "decoding took 62% of the time: it is the slowest stage; engine"),
        (
            COMPUTING,
            RAY,
            "the model took 62% of the extractors' time: it is the slowest stage; add CPUs and extraction",
        ),
        (COMPUTING, Setting("ray", "cuda", 8, False), "slowest stage; add GPUs"),
        (COMPUTING, Setting("here", "cpu", 2, False), "slowest stage; engine=ray computes on several CPUs"),
        (WRITING, RAY, "writing shards took 62% of the extractors' time: it is the slowest stage; let shards grow on"),
        (WRITING, Setting("ray", "cpu", 2, True), "slowest stage; the store's disk needs to be faster"),
    ],
)
def test_advice_names_the_slowest_stage_and_what_helps(spent: Spent, setting: Setting, words: str) -> None:
    assert words in advice(spent, 100, setting)


def test_without_work_there_is_no_advice() -> None:
    assert advice(Spent(), 0, RAY) == ""
    assert advice(Spent(videos=1, writing_s=88, elapsed_s=100), 100, RAY) == "", "a failed video says nothing"


def test_a_short_run_tells_nothing_of_stages() -> None:
    for spent in (WAITING, COMPUTING, WRITING):
        assert advice(spent, 59, RAY) == "this run was too short to tell what is slowest"
        assert "the slowest" in advice(spent, 60, RAY)


def test_no_figure_that_reads_as_nothing() -> None:
    idle = Spent(rows=9, waiting_s=80, model_s=10, writing_s=5, elapsed_s=100, decode_cpu_s=3)
    assert "0.0" not in advice(idle, 100, RAY)
    assert "look at the disk that the videos come from" in advice(idle, 100, RAY)
