"""Data sets with labels and no captions: Kinetics, HMDB-51, UCF-101."""

from __future__ import annotations

from typing import Any

import pytest

from shared.errors import InputFileError, RequestError


def test_kinetics_names_clips_by_their_times(run_adapter: Any) -> None:
    rows = [f'"air, drumming {n % 2}",-3B32lodo2M,{n},{n + 10},{["train", "validate"][n % 2]},0' for n in range(22)]
    bad = ["abseiling,,1,11,train,0", "abseiling,x,ten,11,train,0", "abseiling,x,11,1,train,0", "abseiling,x,1"]
    text = "\n".join(["label,youtube_id,time_start,time_end,split,is_cc", *rows, *bad, "abseiling,gone,1,11,train,0"])
    tests = "youtube_id,time_start,time_end,split\n--6bJUbfpnQ,17,27,test\n"
    media = [f"train/air drumming/-3B32lodo2M_{n:06d}_{n + 10:06d}.mp4" for n in range(22)]
    index = {"train.csv": text, "test.csv": tests}
    done = run_adapter("kinetics", index, media=[*media, "--6bJUbfpnQ_000017_000027.mkv"], rows=28)
    assert done.videos["-3B32lodo2M_000000_000010"] == {
        "video_id": "-3B32lodo2M_000000_000010", "caption_path": "", "split": "train", "label": "air, drumming 0",
        "video_path": "train/air drumming/-3B32lodo2M_000000_000010.mp4", "youtube_id": "-3B32lodo2M",
        "time_start": "0", "time_end": "10",
    }  # fmt: skip
    assert done.result.splits == {"train": 11, "val": 11, "test": 1}
    assert done.reasons() == {
        "malformed": [f"train.csv line {n}" for n in (24, 25, 26, 27)],
        "missing_media": ["train.csv line 28"],
    }


HMDB = "video_id,label,split1,split2,split3\n"


def clip(n: int) -> str:
    return f"#{n}_How_To__[_NEW!!!_]_(Rad);-)_brush_hair_u_nm_np1_ba_goo_{n}.avi"


@pytest.mark.parametrize(
    ("fold", "splits"), [(None, {"unused": 7, "train": 7, "test": 7}), (2, {"test": 7, "train": 14})]
)
def test_hmdb51_csv(run_adapter: Any, fold: int | None, splits: dict[str, int]) -> None:
    rows = [f"{clip(n)},brush_hair_test,{n % 3},{[2, 1, 1][n % 3]},1" for n in range(21)]
    bad = [
        f"{clip(0)},brush_hair_test,1,1,1",
        "x.avi,brush_hair_test,3,1,1",
        "y.avi,brush_hair_test,1",
        "gone.avi,run_test,1,1,1",
    ]
    media = [f"brush_hair/{clip(n)}" for n in range(21)]
    done = run_adapter("hmdb51", {"hmdb51.csv": HMDB + "\n".join(rows + bad)}, media=media, rows=25, fold=fold)
    assert done.result.splits == splits
    assert done.videos[clip(2)]["label"] == "brush_hair"
    assert [done.videos[clip(2)][f"split{k}"] for k in (1, 2, 3)] == ["test", "train", "train"]
    assert {reason: len(places) for reason, places in done.reasons().items()} == {
        "duplicate": 1, "malformed": 2, "missing_media": 1,
    }  # fmt: skip


def test_hmdb51_folder_of_lists(run_adapter: Any) -> None:
    index = {
        f"splits/{label}_test_split{fold}.txt": "".join(f"{label}_{n}.avi {(n + fold) % 3} \n" for n in range(10))
        for label in ("brush_hair", "sword_exercise")
        for fold in (1, 2)
    }
    index["splits/run_test_split1.txt"] = "a.avi 7\nb.avi\nc.avi 1\nc.avi 2\n"
    index["splits/readme.txt"] = "no list\n"
    media = [f"x/{label}_{n}.avi" for label in ("brush_hair", "sword_exercise") for n in range(10)]
    done = run_adapter("hmdb51", index, media=media, rows=44, folder="splits", fold=2)
    assert len(done.videos) == 20
    assert done.videos["sword_exercise_4.avi"] == {
        "video_id": "sword_exercise_4.avi", "video_path": "x/sword_exercise_4.avi", "caption_path": "",
        "split": "unused", "label": "sword_exercise", "split1": "test", "split2": "unused", "split3": "",
    }  # fmt: skip
    assert {reason: len(places) for reason, places in done.reasons().items()} == {
        "malformed": 2, "duplicate": 1, "missing_media": 1,
    }  # fmt: skip
    with pytest.raises(RequestError, match="--fold 3: the files given hold the folds 1, 2"):
        run_adapter("hmdb51", index, media=media, rows=44, folder="splits", fold=3)


def test_ucf101_lists(run_adapter: Any) -> None:
    def name(n: int) -> str:
        return f"ApplyEyeMakeup/v_ApplyEyeMakeup_g{n:02d}_c01.avi"

    index = {
        "trainlist01.txt": "".join(f"{name(n)} 1\r\n" for n in range(14)) + "noSlash.avi 1\nA/b.mp4 1\n",
        "testlist01.txt": "".join(f"{name(n)}\n" for n in range(14, 21)) + f"{name(0)}\n",
        "trainlist02.txt": "".join(f"{name(n)} 1\n" for n in range(7, 21)),
        "testlist02.txt": "".join(f"{name(n)}\n" for n in range(6)) + "Run/gone.avi\n",
    }
    media = [f"UCF-101/{name(n)}" for n in range(21)]
    done = run_adapter("ucf101", index, media=media, rows=16 + 8 + 14 + 7)
    assert done.result.splits == {"train": 14, "test": 7}
    assert done.videos[name(6)] == {
        "video_id": name(6), "video_path": f"UCF-101/{name(6)}", "caption_path": "", "split": "train",
        "label": "ApplyEyeMakeup", "split1": "train", "split2": "unused", "split3": "",
    }  # fmt: skip
    assert done.reasons() == {
        "malformed": ["trainlist01.txt line 15", "trainlist01.txt line 16"],
        "duplicate": ["testlist01.txt line 8"],
        "missing_media": ["testlist02.txt line 7"],
    }
    assert run_adapter("ucf101", index, media=[], rows=45, fold=2).result.splits == {
        "train": 14,
        "test": 6,
        "unused": 1,
    }


@pytest.mark.parametrize(
    ("dataset", "name", "text", "message"),
    [
        ("kinetics", "x.csv", "path,label\n", "columns path, label; expected youtube_id"),
        ("hmdb51", "x.csv", "video_id,label\n", "expected video_id, label, split1"),
        ("hmdb51", "classes.txt", "a\n", "none of HMDB-51 by its name"),
        ("ucf101", "classInd.txt", "1 ApplyEyeMakeup\n", "none of UCF-101 by its name"),
    ],
)
def test_an_index_of_another_data_set_is_refused(
    run_adapter: Any, dataset: str, name: str, text: str, message: str
) -> None:
    with pytest.raises(InputFileError, match=message):
        run_adapter(dataset, {name: text}, media=["a.mp4"], rows=0)


@pytest.mark.parametrize("dataset", ["hmdb51", "ucf101"])
def test_a_folder_without_lists_is_refused(run_adapter: Any, dataset: str) -> None:
    with pytest.raises(InputFileError, match="holds no index"):
        run_adapter(dataset, {"empty/x": ""}, media=["a.mp4"], rows=0, folder="empty")
