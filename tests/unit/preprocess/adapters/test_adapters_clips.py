"""Data sets of clips that a caption spans whole: MSR-VTT, MSVD, WebVid, Something-Something V2."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.errors import InputFileError

WHOLE = 86_400.0


def test_msrvtt_json(run_adapter: Any) -> None:
    videos: list[Any] = [
        {
            "id": n,
            "video_id": f"video{n}",
            "category": n % 20,
            "url": f"https://www.youtube.com/watch?v={n}",
            "start time": 137.72,
            "end time": 149.44,
            "split": ["train", "validate", "test"][n % 3],
        }
        for n in range(22)
    ]
    sentences: list[Any] = [
        {"sen_id": n, "video_id": f"video{n % 22}", "caption": f"a man is singing {n}"} for n in range(66)
    ]
    videos += [{"id": 9}, "video", {**videos[0]}, {**videos[0], "video_id": 7}]
    sentences += [
        {"sen_id": 90, "video_id": "video999", "caption": "of nothing"},
        {"sen_id": 91, "video_id": "video0", "caption": None},
        {"sen_id": 92, "caption": "whose?"},
        None,
        {"sen_id": 93, "video_id": 7, "caption": "an id that is a number"},
    ]
    text = json.dumps({"info": {"year": "2016"}, "videos": videos, "sentences": sentences})
    media = [f"all/video{n}.mp4" for n in range(21)] + ["7.mp4"]
    done = run_adapter("msrvtt", {"MSRVTT_data.json": text}, media=media, rows=26 + 71)
    assert done.captions["video1"] == [(0.0, WHOLE, f"a man is singing {n}") for n in (1, 23, 45)]
    assert done.captions["7"] == [(0.0, WHOLE, "an id that is a number")]
    assert done.videos["video1"] == {
        "video_id": "video1", "video_path": "all/video1.mp4", "split": "val", "category": "1", "start_time": "137.72",
        "end_time": "149.44", "url": "https://www.youtube.com/watch?v=1",
        "caption_path": done.videos["video1"]["caption_path"],
    }  # fmt: skip
    assert done.reasons() == {
        "malformed": [
            *(f"MSRVTT_data.json videos[{n}]" for n in (22, 23)),
            *(f"MSRVTT_data.json sentences[{n}]" for n in (67, 68, 69)),
        ],
        "duplicate": ["MSRVTT_data.json videos[24]"],
        "unknown_video": ["MSRVTT_data.json sentences[66]"],
        "missing_media": ["MSRVTT_data.json videos[21]", *(f"MSRVTT_data.json sentences[{n}]" for n in (21, 43, 65))],
    }


@pytest.mark.parametrize("each", [2, pytest.param(20, marks=pytest.mark.full)])
def test_a_whole_index_of_msrvtt_without_media(run_adapter: Any, each: int) -> None:
    videos = [{"id": n, "video_id": f"video{n}", "category": 3, "split": "train"} for n in range(10_000)]
    sentences = [{"sen_id": n, "video_id": f"video{n // each}", "caption": f"words {n}"} for n in range(10_000 * each)]
    text = json.dumps({"videos": videos, "sentences": sentences})
    done = run_adapter("msrvtt", {"MSRVTT_data.json": text}, media=["readme.txt"], rows=10_000 + 10_000 * each)
    assert done.result.left_out == {"missing_media": 10_000 + 10_000 * each}
    assert len({row["place"] for row in done.missing}) == 10_000 + 10_000 * each


def test_msrvtt_csv(run_adapter: Any) -> None:
    rows = [f"ret{n},msr{n},video{n},a person is connecting {n}" for n in range(24)]
    text = "\n".join(["key,vid_key,video_id,sentence", *rows, "ret9,msr9,video9", "ret1,msr1,video1,"])
    done = run_adapter("msrvtt", {"msrvtt_test.csv": text}, media=[f"video{n}.mp4" for n in range(23)], rows=26)
    assert done.captions["video5"] == [(0.0, WHOLE, "a person is connecting 5")]
    assert done.result.splits == {"test": 23}
    assert done.reasons() == {
        "malformed": ["msrvtt_test.csv line 26", "msrvtt_test.csv line 27"],
        "missing_media": ["msrvtt_test.csv line 25"],
    }


def test_msvd_descriptions_and_lists(run_adapter: Any) -> None:
    names = [f"-4wsu_{n}_{5 + n}_{15 + n}" for n in range(12)]
    lines = ["# header", "", *(f"{name} a squirrel is eating, {k}" for k in range(2) for name in names)]
    lines += ["noNumbers a cat", f"{names[0]}", "x_1_b words"]
    index = {
        "AllVideoDescriptions.txt": "\r\n".join(lines).encode() + b"\nabc_1_2 caf\xe9\n",
        "train_list.txt": "\n".join(names[:8]) + "\nunheard_1_2\n",
        "val_list.txt": f"{names[8]}\n{names[0]}\n",
        "test_list.txt": "\n".join(names[9:11]),
    }
    done = run_adapter("msvd", index, media=[f"{name}.avi" for name in names], rows=24 + 4 + 9 + 2 + 2)
    assert done.captions[names[1]] == [(0.0, WHOLE, f"a squirrel is eating, {k}") for k in range(2)]
    assert done.result.splits == {"train": 8, "val": 1, "test": 2, "": 1}
    assert done.reasons() == {
        "malformed": [f"AllVideoDescriptions.txt line {n}" for n in (27, 28, 29, 30)],
        "unknown_video": ["train_list.txt line 9"],
        "duplicate": ["val_list.txt line 2"],
    }


def test_msvd_corpus_keeps_english_and_lists_the_rest(run_adapter: Any) -> None:
    rows = [
        f'mv89psg6zh4,{n % 5},{n % 5 + 13},{n},unverified,55,{["English", "German"][n % 4 == 3]},"A bird, bathing {n}"'
        for n in range(24)
    ]
    text = "VideoID,Start,End,WorkerID,Source,AnnotationTime,Language,Description\n" + "\n".join(rows)
    done = run_adapter(
        "msvd", {"video_corpus.csv": text}, media=[f"mv89psg6zh4_{n}_{n + 13}.avi" for n in range(5)], rows=24
    )
    assert len(done.videos) == 5
    assert sum(map(len, done.captions.values())) == 18
    assert list(done.reasons()) == ["other_language"]


def test_webvid(run_adapter: Any) -> None:
    rows = [
        f'{1066674784 + n},https://ak.example/{n}.mp4,PT00H00M{n:02d}S,{n:06d}_{n + 50:06d},"Hills, {n}"'
        for n in range(22)
    ]
    bad = [
        "1,https://x,PT,000001_000050,",
        '2,https://x,PT,000001_000050,"open',
        "3,https://x",
        ",https://x,PT,p,no id",
    ]
    text = "\n".join(["videoid,contentUrl,duration,page_dir,name", *rows, *bad])
    # The same name twice: the page folder decides.
    media = [f"part0/{n:06d}_{n + 50:06d}/{1066674784 + n}.mp4" for n in range(21)] + ["other/1066674784.mp4"]
    done = run_adapter("webvid", {"results_2M_val.csv": text}, media=media, rows=26)
    assert done.videos["1066674784"]["video_path"] == "part0/000000_000050/1066674784.mp4"
    assert done.result.several == 1
    assert done.captions["1066674785"] == [(0.0, WHOLE, "Hills, 1")]
    assert done.videos["1066674785"]["duration"] == "PT00H00M01S"
    assert done.result.splits == {"val": 21}
    assert {reason: len(places) for reason, places in done.reasons().items()} == {"malformed": 4, "missing_media": 1}


def test_something_something_v2(run_adapter: Any) -> None:
    train: list[Any] = [
        {
            "id": str(78687 + n),
            "label": f"holding potato {n} next to vicks vaporub bottle",
            "template": "Holding [something] next to [something]",
            "placeholders": [f"potato {n}", "vicks vaporub bottle"],
        }
        for n in range(21)
    ]
    train += [{"id": "1", "label": "x"}, {"id": "2", "label": 5, "template": "y"}, {"label": "x"}, [], {"id": 100000}]
    index = {
        "something-something-v2-train.json": json.dumps(train),
        "something-something-v2-test.json": json.dumps([{"id": "1420"}, {"id": "1421"}]),
    }
    media = [f"{78687 + n}.webm" for n in range(21)] + ["1420.webm", "100000.webm"]
    done = run_adapter("ssv2", index, media=media, rows=28)
    assert done.captions["78687"] == [(0.0, WHOLE, "holding potato 0 next to vicks vaporub bottle")]
    assert done.videos["78687"]["label"] == "Holding something next to something"
    assert done.videos["1420"]["split"] == "test"
    assert done.result.splits == {"train": 22, "test": 1}
    assert {reason: len(places) for reason, places in done.reasons().items()} == {"malformed": 4, "missing_media": 1}


@pytest.mark.parametrize(
    ("dataset", "name", "text", "message"),
    [
        ("msrvtt", "x.json", '{"database": {}}', "keys database; expected a list 'videos'"),
        ("msrvtt", "x.json", '{"videos": [{"video_id": "a"}]}', "keys videos; expected a list 'sentences'"),
        ("msrvtt", "x.csv", "video_id,caption\n", "expected key, vid_key, video_id, sentence"),
        ("msvd", "train_list.txt", "a_1_2\n", "is a list of ids"),
        ("msvd", "x.txt", "# nothing\n", "holds no descriptions"),
        ("webvid", "x.csv", "videoid;contentUrl\n", "expected videoid, contentUrl"),
        ("ssv2", "labels.json", '{"Holding something": "0"}', "keys Holding something; expected a list"),
        ("ssv2", "x.json", "5", "a single value"),
    ],
)
def test_an_index_of_another_data_set_is_refused(
    run_adapter: Any, dataset: str, name: str, text: str, message: str
) -> None:
    with pytest.raises(InputFileError, match=message):
        run_adapter(dataset, {name: text}, media=["a.mp4"], rows=0)
