"""Indexes with something changed: the account is whole and the manifest can be read, or the index is refused."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from preprocess.adapters.adapt import adapt
from shared.errors import RequestError

ODD: tuple[Any, ...] = (
    None, True, -1, 0.5, 10**30, 1e300, float("inf"), [], {}, [1], {"a": 1}, "", " a", "a\nb", "a/b", "../..", "\ud800",
    "\0", "é🍳", "x" * 120_000, "nan", "-v1", "a,b", '"', "\u2028",
)  # fmt: skip


def lines(header: str, row: str, count: int = 4) -> str:
    """`N` in the row is its number, from 0 to 3."""
    return header + "".join(row.replace("N", str(n % 4)) + "\n" for n in range(count))


def entries(entry: dict[str, Any], count: int = 4) -> list[Any]:
    return [json.loads(json.dumps(entry).replace('"N"', str(n % 4)).replace("N", str(n % 4))) for n in range(count)]


SEGMENTS = [{"segment": [1, 2], "id": 0, "sentence": "mix"}, {"segment": [3, 4], "id": 1, "sentence": "stir"}]
YOUCOOK2 = {f"-v{n}": {"subset": "training", "recipe_type": "101", "annotations": SEGMENTS} for n in range(4)}
MSRVTT = {"video_id": "-vN", "category": 1, "url": "u", "start time": 1.5, "split": "train"}

JSON: dict[str, tuple[str, Any]] = {
    "youcook2": ("trainval.json", {"database": YOUCOOK2}),
    "msrvtt": (
        "MSRVTT_data.json",
        {"videos": entries(MSRVTT), "sentences": entries({"video_id": "-vN", "caption": "a man"}, 8)},
    ),
    "didemo": ("train_data.json", entries({"video": "-vN", "times": [[0, 0], [1, 2]], "description": "cat"}, 8)),
    "ssv2": ("train.json", entries({"id": "-vN", "label": "a cup", "template": "a [thing]"})),
    "coco": (
        "captions_train2017.json",
        {
            "images": entries({"id": "N", "file_name": "-vN.jpg"}),
            "annotations": entries({"image_id": "N", "caption": "a man"}, 8),
        },
    ),
}

TEXT: dict[str, tuple[str, str]] = {
    "howto100m": ("i.csv", lines("video_id,category_1,category_2,rank,task_id\n", '-vN,"Food, x",b,1,2')),
    "youcook2": ("val.csv", lines("end,start,task,text,video_id\n", '9N,N,226,"a, b",-vN', 8)),
    "msrvtt": ("test.csv", lines("key,vid_key,video_id,sentence\n", "r,m,-vN,words", 8)),
    "msvd": ("all.txt", lines("", "-v_N_9 a squirrel", 8)),
    "webvid": ("train.csv", lines("videoid,contentUrl,duration,page_dir,name\n", '-vN,u,P,0_9,"a, ""b"""')),
    "hmdb51": ("h.csv", lines("video_id,label,split1,split2,split3\n", "-vN.avi,run_test,0,1,2")),
    "ucf101": ("trainlist01.txt", lines("", "Run/-vN.avi 1")),
    "kinetics": ("train.csv", lines("label,youtube_id,time_start,time_end,split\n", '"a, b",-vN,1,11,train')),
}

MEDIA = (
    [f"-v{n}.mp4" for n in range(4)]
    + [f"-v_{n}_9.avi" for n in range(4)]
    + ["-v0_000001_000011.mp4", "-v0.jpg", "-v1.jpg"]
)


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside of a JSON value."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [node for key in keys for node in nodes(value[key])]


def change_json(draw: random.Random, sound: Any) -> bytes:
    changed = copy.deepcopy(sound)
    for _ in range(draw.randint(1, 3)):
        container, key = draw.choice(nodes(changed))
        if draw.random() < 0.2:
            del container[key]
        elif isinstance(container, dict) and draw.random() < 0.2:
            container[str(draw.choice(ODD))] = container.pop(key)
        else:
            container[key] = draw.choice(ODD)
        if not nodes(changed):
            break
    return json.dumps(changed).replace("Infinity", "1e999").encode()


def change_text(draw: random.Random, sound: str) -> bytes:
    data = bytearray(sound.encode())
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data))
        new = draw.choice([draw.randbytes(2), b'"', b"\n", b"\r", b",", b"\0", b"\xff", b"x" * 120_000, b" ", b""])
        data[at : at + draw.randint(0, 3)] = new
    return bytes(data)


@pytest.mark.parametrize("rounds", [25, pytest.param(400, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("dataset", "name", "sound", "change"),
    [(dataset, *case, change_json) for dataset, case in JSON.items()]
    + [(dataset, *case, change_text) for dataset, case in TEXT.items()],
)
def test_one_thing_changed(
    tmp_path: Path, check_adapted: Any, dataset: str, name: str, sound: Any, change: Any, rounds: int
) -> None:
    draw = random.Random(f"{dataset} {name}")
    data = tmp_path / "data"
    data.mkdir()
    for media in MEDIA:
        (data / media).write_bytes(b"media")
    usable = 0
    for _ in range(rounds):
        (tmp_path / name).write_bytes(change(draw, sound))
        try:
            result = adapt(dataset, [tmp_path / name], data)
        except RequestError:
            continue
        check_adapted(result, result.rows)
        usable += bool(result.videos)
    assert usable
