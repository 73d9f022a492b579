"""Data sets whose captions have times: YouCook2, DiDeMo, HowTo100M."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.errors import InputFileError

WHOLE = 86_400.0


def segments(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"segment": [10 * n, 10 * n + 7], "id": n, "sentence": f"step {n}, stir"} for n in range(first, first + count)
    ]


def test_youcook2_json(run_adapter: Any) -> None:
    database: dict[str, Any] = {
        f"-v{n:02d}_{'Ab'[n % 2]}": {
            "duration": 300.5,
            "subset": ["training", "validation", "testing"][n % 3],
            "recipe_type": str(100 + n),
            "annotations": segments(4),
            "video_url": f"https://www.youtube.com/watch?v={n}",
        }
        for n in range(20)
    }
    database["absent"] = database["-v00_A"]
    database["noList"] = {"subset": "training", "annotations": {}}
    database["noObject"] = [1]
    database[" spaced"] = {"annotations": segments(1)}
    database["-v03_b"]["annotations"] += [
        {"segment": [1], "sentence": "one time"},
        {"segment": ["NaN", 2], "sentence": "not a number"},
        {"segment": [1, 2], "sentence": None},
        {"segment": [1, 2], "sentence": "  \n "},
        "no object",
    ]
    media = [f"training/{100 + n}/{name}.{['mp4', 'mkv', 'webm'][n % 3]}" for n, name in enumerate(list(database)[:20])]
    done = run_adapter(
        "youcook2", {"trainval.json": json.dumps({"database": database})}, media=media, rows=20 * 5 + 5 + 5 + 1 + 1 + 2
    )
    assert list(done.videos) == list(database)[:20]
    assert done.result.splits == {"train": 7, "val": 7, "test": 6}
    assert done.videos["-v01_b"]["recipe_type"] == "101"
    assert done.captions["-v01_b"] == [(10.0 * n, 10.0 * n + 7, f"step {n}, stir") for n in range(4)]
    assert done.reasons()["missing_media"] == [
        "trainval.json database.absent",
        *(f"trainval.json database.absent.annotations[{n}]" for n in range(4)),
    ]
    assert done.reasons()["malformed"] == [
        *(f"trainval.json database.-v03_b.annotations[{n}]" for n in range(4, 9)),
        "trainval.json database.noList",
        "trainval.json database.noObject",
        "trainval.json database. spaced",
        "trainval.json database. spaced.annotations[0]",
    ]


def test_a_whole_index_of_youcook2_without_media(run_adapter: Any) -> None:
    database = {f"-v{n:09d}": {"subset": "training", "annotations": segments(8)} for n in range(2000)}
    index = {"youcookii_annotations_trainval.json": json.dumps({"database": database})}
    done = run_adapter("youcook2", index, media=["readme.txt"], rows=18_000)
    assert {reason: len(places) for reason, places in done.reasons().items()} == {"missing_media": 18_000}
    assert len({(row["place"], row["video_id"]) for row in done.missing}) == 18_000


def test_youcook2_csv_with_its_own_column_order(run_adapter: Any) -> None:
    rows = [f'{9 * n + 5},{9 * n},226,"pick, then ""wash"" {n}",-vid{n % 7}' for n in range(21)]
    bad = [
        "5,1,226,too few",
        "x,1,226,no number,-vid0",
        "inf,1,226,endless,-vid0",
        "5,1,226,,-vid0",
        '5,1,226,"never closed,-vid0',
        "5,1,226,after it,-vid0",
        "5,1,226,not there,gone",
    ]
    text = "\ufeff" + "\r\n".join(["end,start,task,text,video_id", *rows, *bad, ""])
    done = run_adapter("youcook2", {"validation_youcook.csv": text}, media=[f"-vid{n}.webm" for n in range(7)], rows=28)
    assert done.captions["-vid0"] == [
        (0.0, 5.0, 'pick, then "wash" 0'),
        (63.0, 68.0, 'pick, then "wash" 7'),
        (126.0, 131.0, 'pick, then "wash" 14'),
        (1.0, 5.0, "after it"),
    ]
    assert done.result.splits == {"val": 7}
    assert done.reasons() == {
        "malformed": [f"validation_youcook.csv line {n}" for n in (23, 24, 25, 26, 27)],
        "missing_media": ["validation_youcook.csv line 29"],
    }


def test_didemo_takes_the_moment_that_most_annotators_say(run_adapter: Any) -> None:
    entries: list[Any] = [
        {
            "num_segments": 6,
            "description": f"the cat jumps {n}",
            "dl_link": "https://example.org",
            "times": [[0, 0], [n % 3, n % 3 + 1], [5, 5], [n % 3, n % 3 + 1]],
            "video": f"5432{n % 10}@N00_24_277.avi",
            "annotation_id": n,
        }
        for n in range(22)
    ]
    entries += [
        {**entries[0], "times": [[2, 1]]},
        {**entries[0], "times": []},
        {**entries[0], "times": [[0, True]]},
        {**entries[0], "times": [["0", "1"]]},
        {**entries[0], "description": 7},
        {**entries[0], "video": "gone.mov"},
        {"times": [[0, 0]]},
        None,
    ]
    media = [f"5432{n}@N00_24_277.{['avi', 'mp4', 'avi.mp4'][n % 3]}" for n in range(10)]
    done = run_adapter("didemo", {"train_data.json": json.dumps(entries)}, media=media, rows=30)
    first = "54320@N00_24_277.avi"
    assert done.captions[first] == [
        (0.0, 10.0, "the cat jumps 0"),
        (5.0, 15.0, "the cat jumps 10"),
        (10.0, 20.0, "the cat jumps 20"),
    ]
    assert done.videos["54321@N00_24_277.avi"]["video_path"] == "54321@N00_24_277.mp4"
    assert done.videos["54322@N00_24_277.avi"]["video_path"] == "54322@N00_24_277.avi.mp4"
    assert {row["split"] for row in done.videos.values()} == {"train"}
    assert done.reasons() == {
        "malformed": [f"train_data.json [{n}]" for n in (22, 23, 24, 25, 26, 28, 29)],
        "missing_media": ["train_data.json [27]"],
    }


INDEX = "video_id,category_1,category_2,rank,task_id\n"


def howto_rows(count: int) -> str:
    return INDEX + "".join(f"-id_{n},Food and Entertaining,Recipes,{n},{100 + n}\n" for n in range(count))


def test_howto100m_with_one_json_of_captions(run_adapter: Any, tmp_path: Path) -> None:
    captions: dict[str, Any] = {
        f"-id_{n}": {"start": [1.5, 4.0], "end": [3.0, 9], "text": [f"chop the {n}", "and stir"]} for n in range(21)
    }
    captions |= {
        "-id_1": {"start": [1, 2, -3], "end": [2, float("1e9"), 1], "text": ["good", "too late", "early"]},
        "-id_2": {"start": [1, 2], "end": [2], "text": ["a", "b"]},
        "-id_3": "no object",
        "-id_4": {"start": [], "end": [], "text": []},
        "-id_5": {"start": [1, 2], "end": [2, 3], "text": [5, None]},
        "elsewhere": {"start": [1], "end": [2], "text": ["not in the index"]},
    }
    path = tmp_path / "raw_caption.json"
    again = ', "-id_0": {"start": [1], "end": [2], "text": ["a second time"]}}'
    path.write_text(json.dumps(captions).removesuffix("}") + again)
    media = [f"{n % 3}/-id_{n}.{['mp4', 'webm', 'mkv'][n % 3]}" for n in range(20)]
    index = howto_rows(21) + "-id_0,again,,1,2\nshort\n"
    done = run_adapter("howto100m", {"HowTo100M_v1.csv": index}, media=media, captions=path, rows=23 + 23 + 3)
    assert done.captions["-id_0"] == [(1.5, 3.0, "chop the 0"), (4.0, 9.0, "and stir")]
    assert done.captions["-id_1"] == [(1.0, 2.0, "good"), (-3.0, 1.0, "early")]
    assert len(done.captions) == 16
    assert done.videos["-id_2"]["caption_path"] == ""
    assert done.videos["-id_7"]["task_id"] == "107"
    assert done.reasons() == {
        "malformed": [
            "raw_caption.json -id_1[1]",
            "raw_caption.json -id_2",
            "raw_caption.json -id_3",
            "raw_caption.json -id_4",
            "raw_caption.json -id_5[0]",
            "raw_caption.json -id_5[1]",
            "raw_caption.json -id_5",
            "HowTo100M_v1.csv line 24",
        ],
        "missing_media": ["raw_caption.json -id_20", "HowTo100M_v1.csv line 22"],
        "not_in_index": ["raw_caption.json elsewhere"],
        "duplicate": ["raw_caption.json -id_0", "HowTo100M_v1.csv line 23"],
    }


def test_howto100m_with_a_caption_file_for_each_video(run_adapter: Any, tmp_path: Path) -> None:
    folder = tmp_path / "captions"
    folder.mkdir()
    for n in range(10):
        (folder / f"-id_{n}.csv").write_text(f"start,end,text\n1.0,2.5,words {n}\n")
    done = run_adapter(
        "howto100m",
        {"HowTo100M_v1.csv": howto_rows(20)},
        media=[f"-id_{n}.mp4" for n in range(20)],
        captions=folder,
        rows=20,
    )
    assert done.captions == {f"-id_{n}": [(1.0, 2.5, f"words {n}")] for n in range(10)}
    assert done.videos["-id_3"]["caption_path"] == "../captions/-id_3.csv"
    assert done.result.root == tmp_path
    assert list((tmp_path / "data").glob("videos.captions-*")) == []


@pytest.mark.parametrize(
    ("dataset", "name", "text", "message"),
    [
        ("youcook2", "x.csv", "video_id,label\na,b\n", "columns video_id, label; expected end, start, task"),
        ("youcook2", "x.json", '{"videos": [], "sentences": []}', "keys videos, sentences; expected an object"),
        ("youcook2", "x.json", '{"database": {"a": {"annotations": [', "not whole JSON"),
        ("didemo", "x.json", '{"database": {"a": 1}}', "keys database; expected a list with entries"),
        ("didemo", "x.json", "[]", "an empty list"),
        ("didemo", "x.json", "", "not whole JSON"),
        ("howto100m", "x.csv", "a,b\n", "expected video_id, category_1"),
        ("howto100m", "x.csv", "", "the columns none"),
    ],
)
def test_an_index_of_another_data_set_is_refused(
    run_adapter: Any, tmp_path: Path, dataset: str, name: str, text: str, message: str
) -> None:
    with pytest.raises(InputFileError, match=message):
        run_adapter(dataset, {name: text}, media=["a.mp4"], rows=0)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["a.mp4"]
