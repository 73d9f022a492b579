"""Every caption file of the test material, parsed and cleaned as its format says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import webvtt

from preprocess.captions.clean import CleanConfig, clean
from preprocess.captions.read import read_track
from preprocess.captions.types import CaptionTrack
from shared.errors import Failure

# file -> cues and skipped, or the reason of the failure
EXPECTED: dict[str, tuple[int, int] | str] = {
    "descriptions/elephantsdream.captions.en.vtt": (78, 0),
    "descriptions/elephantsdream.descriptions.en.vtt": (63, 0),
    "one_digit_hours.vtt": (5, 0),
    "rolling_auto.en.vtt": (16, 0),
    "srt/00_welcome-to-the-hugging-face-course.srt": (103, 0),
    "srt/01_the-pipeline-function.srt": (100, 0),
    "srt/02_the-carbon-footprint-of-transformers.srt": (129, 0),
    "srt/03_what-is-transfer-learning.srt": (90, 0),
    "srt/04_the-transformer-architecture.srt": (64, 0),
    "srt/05_transformer-models-encoders.srt": (102, 0),
    "srt/index_from_zero.srt": (7, 0),
    "vttjs/blank-file.vtt": "empty_file",
    "vttjs/bom-garbage-data.vtt": "not_captions",
    "vttjs/cue-spacing.vtt": (4, 0),
    "vttjs/fraction-digits.vtt": (0, 1),
    "vttjs/fractions.vtt": (1, 0),
    "vttjs/garbage-signature.vtt": "not_captions",
    "vttjs/header-no-new-line.vtt": (1, 0),
    "vttjs/incorrect-delimiter.vtt": (0, 1),
    "vttjs/left-tab.vtt": (1, 0),
    "vttjs/max-spot-digits.vtt": (1, 0),
    "vttjs/min-mid-digits.vtt": (0, 1),
    "vttjs/webvtt-with-bom.vtt": (1, 0),
    "webvtt_py/captions_with_bom.vtt": (4, 0),
    "webvtt_py/comments.vtt": (3, 0),
    "webvtt_py/cue_tags.vtt": (3, 0),
    "webvtt_py/empty.vtt": "empty_file",
    "webvtt_py/invalid.vtt": "not_captions",
    "webvtt_py/invalid_format1.srt": "not_captions",
    "webvtt_py/invalid_format2.srt": "not_captions",
    "webvtt_py/invalid_timeframe.srt": (5, 0),  # a full stop for the comma means the same
    "webvtt_py/invalid_timeframe.vtt": (6, 1),
    "webvtt_py/invalid_timeframe_in_cue_text.vtt": (4, 0),
    "webvtt_py/metadata_headers.vtt": (2, 0),
    "webvtt_py/missing_caption_text.srt": (5, 0),
    "webvtt_py/missing_caption_text.vtt": (5, 0),
    "webvtt_py/missing_timeframe.srt": (4, 1),
    "webvtt_py/missing_timeframe.vtt": (6, 1),
    "webvtt_py/no_captions.vtt": (0, 0),
    "webvtt_py/one_caption.srt": (1, 0),
    "webvtt_py/sample.srt": (5, 0),
    "webvtt_py/sample.vtt": (16, 0),
    "webvtt_py/styles.vtt": (1, 0),
    "webvtt_py/using_identifiers.vtt": (6, 0),
}
# webvtt-py keeps no cue without text and refuses what it cannot read whole: there is nothing to compare.
CROSS_CHECKED = [name for name, expected in EXPECTED.items() if isinstance(expected, tuple) and expected[0]]
DIFFERENT = {
    "vttjs/cue-spacing.vtt",
    "vttjs/header-no-new-line.vtt",
    "vttjs/max-spot-digits.vtt",
    "webvtt_py/invalid_timeframe.srt",
    "webvtt_py/invalid_timeframe.vtt",
    "webvtt_py/invalid_timeframe_in_cue_text.vtt",
    "webvtt_py/missing_caption_text.srt",
    "webvtt_py/missing_caption_text.vtt",
    "webvtt_py/missing_timeframe.srt",  # it takes number and text for a part of the cue before
}


WITH_JSON = [
    f"vttjs/{name}.vtt"
    for name in (
        "cue-spacing", "fraction-digits", "fractions", "incorrect-delimiter", "max-spot-digits", "min-mid-digits"
    )
]  # fmt: skip


@pytest.fixture
def cases(material_path) -> Path:  # type: ignore[no-untyped-def]
    folder: Path = material_path("cases", "captions")
    return folder


def test_no_case_is_left_out(cases: Path) -> None:
    assert {path.stem for path in (cases / "vttjs").glob("*.json")} == {Path(name).stem for name in WITH_JSON}
    found = {path.relative_to(cases).as_posix() for path in cases.rglob("*") if path.suffix in {".vtt", ".srt"}}
    assert found == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_read(cases: Path, name: str) -> None:
    track = read_track((cases / name).read_bytes(), Path(name).name)
    if isinstance(track, Failure):
        assert track.reason == EXPECTED[name]
    else:
        assert (len(track.cues), len(track.skipped)) == EXPECTED[name]
        assert track.format == ("webvtt" if name.endswith(".vtt") else "srt")


@pytest.mark.parametrize("name", WITH_JSON)
def test_the_json_beside_is_the_right_parse(cases: Path, name: str) -> None:
    beside = (cases / name).with_suffix(".json")
    expected = [(c["startTime"], c["endTime"], c["text"]) for c in json.loads(beside.read_text())["cues"]]
    track = read_track((cases / name).read_bytes(), name)
    assert isinstance(track, CaptionTrack)
    assert [(cue.start, cue.end, cue.text) for cue in track.cues] == expected


@pytest.mark.parametrize("name", [name for name in CROSS_CHECKED if name not in DIFFERENT])
def test_webvtt_py_reads_the_same(cases: Path, name: str) -> None:
    parse = webvtt.read if name.endswith(".vtt") else webvtt.from_srt
    theirs = [(c.start_in_seconds, c.end_in_seconds, c.raw_text) for c in parse(str(cases / name)).captions]
    track = read_track((cases / name).read_bytes(), name)
    assert isinstance(track, CaptionTrack)
    # It knows whole seconds only.
    assert [(int(cue.start), int(cue.end), cue.text) for cue in track.cues] == [
        (int(a), int(b), t) for a, b, t in theirs
    ]


@pytest.mark.parametrize("sounds", [False, True])
def test_rolling_captions_word_by_word(cases: Path, sounds: bool) -> None:
    expected = json.loads((cases / "rolling_auto.expected.json").read_text())
    track = read_track((cases / "rolling_auto.en.vtt").read_bytes(), "rolling_auto.en.vtt")
    assert isinstance(track, CaptionTrack)
    captions = clean(track.cues, None, CleanConfig(sounds=sounds)).captions
    wanted = [(w["word"], w["start"]) for w in expected["words"] if not (sounds and w.get("sound_mark"))]
    assert [(w.text, w.start) for c in captions for w in c.words] == wanted
    assert [word for c in captions for word in c.text.split()] == [word for word, _ in wanted]
    assert max(c.end for c in captions) <= expected["end"]


def test_ordinary_captions_lose_nothing_but_sounds(cases: Path) -> None:
    for name in EXPECTED:
        if not name.startswith(("srt/", "descriptions/")):
            continue
        track = read_track((cases / name).read_bytes(), name)
        assert isinstance(track, CaptionTrack)
        result = clean(track.cues, None, CleanConfig())
        assert len(result.captions) == len(track.cues) - result.counts["empty"]
        assert result.counts["rolling"] == result.counts["duplicates"] == 0


def test_the_corpus(material_path) -> None:  # type: ignore[no-untyped-def]
    folder = material_path("corpus", "captions")
    for path in sorted(folder.iterdir()):
        track = read_track(path.read_bytes(), path.name)
        assert isinstance(track, CaptionTrack)
        assert track.cues
        assert track.skipped == ()
    nasa = read_track((folder / "nasa_13013.en.vtt").read_bytes(), "nasa_13013.en.vtt")
    assert isinstance(nasa, CaptionTrack)
    result = clean(nasa.cues, 13.0, CleanConfig())
    assert result.captions[0].text.startswith("This is the optical")
    assert result.captions[-1].end == 13.0
