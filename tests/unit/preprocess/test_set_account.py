"""What a set tells people of how it came about."""

from __future__ import annotations

from typing import Any

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.types import CaptionTrack, Cue
from preprocess.set_account import set_lines
from preprocess.set_report import SetReport
from shared.schema import ManifestInfo


def info(report: dict[str, Any]) -> ManifestInfo:
    return ManifestInfo(
        name="default", fingerprint="ab", stream="default", stream_fingerprint="cd", config={}, tokenizer={},
        captions=7, tokens=9, splits={}, parts={}, report=report,
    )  # fmt: skip


def test_a_set_in_which_nothing_happened() -> None:
    assert list(set_lines(info(SetReport(videos={"train": 2, "val": 1}, cues=7).as_dict("ab")))) == [
        "videos: 2 train, 1 val",
        "captions: 7 from 7 cues",
        "tokens: 0.0% unknown; captions: 0.0% truncated, 0.0% without any token",
    ]


REPORT = SetReport(
    cues=20,
    skipped=1,
    skipped_examples=[["a", "line 3: no time"]],
    cleaned={"tags": 0, "overlaps": 2},
    clean_examples={"overlaps": [["a", "0 --> 2 x", ""]]},
    filtered={"min_words": 3},
    filter_examples={"min_words": [["b", "1 --> 2 oh", "1 word"]]},
    left_out={"no rows": 1},
    left_out_examples=[["b", 1.0, 2.0, "no rows"]],
    videos={"train": 2},
    failures={"excluded": 1, "bad_split": 2},
    without_captions=1,
    near_duplicates={
        "videos": {"counts": {"train, val": 1}, "examples": [["a", "train", "b", "val", 0.999]]},
        "captions": {"counts": {"train, val": 4}, "examples": []},
        "dropped": True,
    },
).as_dict("ab") | {"tokens": {"unknown": 0.82, "truncated": 0.0, "empty": 0.32}}


def test_everything_that_happened_is_told() -> None:
    assert list(set_lines(info(REPORT))) == [
        "videos: 2 train",
        "left out: 2 bad_split, 1 excluded",
        "videos: 1 without captions",
        "captions: 7 from 20 cues",
        "cues that could not be read: 1",
        "cleaning changed: 2 overlaps",
        "filters dropped: 3 min_words",
        "windows left out: 1 no rows",
        "near-duplicate videos dropped from training: 1 between train and val",
        "near-duplicate captions dropped from training: 4 between train and val",
        "tokens: 82.0% unknown; captions: 0.0% truncated, 32.0% without any token; "
        "does this tokenizer fit these captions?",
    ]


def test_with_examples() -> None:
    lines = list(set_lines(info(REPORT), examples=True))
    assert "  a: line 3: no time" in lines
    assert lines[lines.index("cleaning changed: 2 overlaps") + 1] == "  a: 0 --> 2 x  =>  (nothing)"
    assert "  b: 1 --> 2 oh  =>  1 word" in lines
    assert "  b: 1.0  =>  2.0  =>  no rows" in lines


def test_reports_of_earlier_releases() -> None:
    first, *rest = set_lines(info({}), examples=True)
    assert first.startswith("no report: this set was made by a release that wrote none; `python -m preprocess manif")
    assert rest == ["videos: 0", "captions: 7, of 9 tokens", "windows: none"]


def test_an_edited_set_says_what_its_tables_know() -> None:
    parts = {"videos.csv": 3, "videos.00001.csv": 2, "captions.csv": 7}
    edited = info({"edited_by": "remove"}).model_copy(update={"parts": parts, "splits": {"train": 9, "val": 8}})
    first, *rest = set_lines(edited)
    assert first.startswith("no report: this set was edited by `preprocess remove`; ")
    assert rest == ["videos: 5", "captions: 7, of 9 tokens", "windows: 9 train, 8 val"]


def test_captions_that_are_cut_name_the_key_that_cuts_them() -> None:
    rates = {"unknown": 0.0, "truncated": 0.182, "empty": 0.0}
    report = SetReport(videos={"train": 1}).as_dict("ab") | {"tokens": rates}
    *_, line = set_lines(info(report).model_copy(update={"tokenizer": {"max_length": 20}}))
    assert "does this tokenizer fit" not in line
    assert line.endswith("; they are cut at tokenizer.max_length (20): raise it, or cut captions by `segment`")


def test_examples_of_cleaning_are_counted_over_the_set() -> None:
    def cleaned(most: int) -> SetReport:
        report = SetReport(most=most)
        for video in ("a", "b", "c"):
            cues = [Cue(0.0, 1.0, "<b>x</b>"), Cue(1.0, 2.0, "<i>y</i>"), Cue(2.0, 3.0, "<i>z</i>")]
            track = CaptionTrack("vtt", tuple(cues), ())
            report.add_track(video, track, clean(cues, 9.0, CleanConfig(examples=most)))
        return report

    assert {most: len(cleaned(most).clean_examples.get("tags", [])) for most in (0, 2, 3, 8)} == {
        0: 0,
        2: 2,
        3: 3,
        8: 8,
    }
    assert cleaned(2).cleaned["tags"] == 9
