"""Data sets of images: COCO, and CC3M and LAION as img2dataset leaves them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from shared.errors import EnvironmentLacking, InputFileError

WHOLE = 86_400.0


def parquet(columns: dict[str, list[Any]]) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def downloads(urls: list[str], failed: tuple[int, ...] = ()) -> bytes:
    """What img2dataset writes of these URLs; those in `failed` could not be had."""
    return parquet(
        {
            "url": urls,
            "caption": [f"caption of {url}" for url in urls],
            "key": [f"{n:09d}" for n in range(len(urls))],
            "status": ["failed_to_download" if n in failed else "success" for n in range(len(urls))],
            "error_message": ["HTTP Error 404: Not Found" if n in failed else None for n in range(len(urls))],
        }
    )


def test_coco(run_adapter: Any) -> None:
    images: list[Any] = [{"id": 391895 + n, "file_name": f"{391895 + n:012d}.jpg", "height": 360} for n in range(21)]
    captions: list[Any] = [
        {"image_id": 391895 + n % 21, "id": n, "caption": f"A man on a bike {n}.\n"} for n in range(42)
    ]
    images += [{"id": 5}, {"file_name": "x.jpg"}, 7, images[0], {"id": 9, "file_name": "gone.jpg"}]
    captions += [{"image_id": 1, "caption": "of none"}, {"image_id": 391895, "caption": ""}, {"caption": "whose"}, None]
    text = json.dumps({"info": {}, "licenses": [], "images": images, "annotations": captions})
    # Files of one name in both folders: that of the index's own name is taken.
    media = [f"{folder}/{391895 + n:012d}.jpg" for n in range(21) for folder in ("val2017", "train2017")]
    done = run_adapter("coco", {"captions_val2017.json": text}, media=media, rows=26 + 46)
    assert done.captions["391895"] == [(0.0, WHOLE, "A man on a bike 0."), (0.0, WHOLE, "A man on a bike 21.")]
    assert done.videos["391895"]["video_path"] == "val2017/000000391895.jpg"
    assert done.result.splits == {"val": 21}
    assert {reason: len(places) for reason, places in done.reasons().items()} == {
        "malformed": 6, "duplicate": 1, "unknown_video": 1, "missing_media": 1,
    }  # fmt: skip


@pytest.mark.parametrize("header", ["", "caption\turl\n"])
def test_cc3m_joins_by_url(run_adapter: Any, tmp_path: Path, header: str) -> None:
    urls = [f"http://a.example/{n}.jpg" for n in range(22)]
    shuffled = urls[::-1]
    lines = [f'sky "over" {n} , sea\t{url}' for n, url in enumerate(urls)]
    lines += ["no tab", "a\tb\thttp://x", "text\tnot a url", "\thttp://a.example/0.jpg", "new\thttp://b.example/1.jpg"]
    lines += [f"again\t{urls[0]}"]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "00000.parquet").write_bytes(downloads(shuffled, failed=(3,)))
    media = [f"00000/{n:09d}.jpg" for n in range(22) if n not in (3, 5)]
    text = (
        header.encode() + "\n".join(lines).encode() + b"\ncaf\xe9\thttp://a.example/1.jpg\nx\thttp://a.example/\xe9\n"
    )
    done = run_adapter("cc3m", {"Train_GCC-training.tsv": text}, media=media, rows=30)
    assert done.captions["000000021"] == [(0.0, WHOLE, 'sky "over" 0 , sea')]
    assert done.videos["000000021"]["url"] == urls[0]
    assert (done.result.videos, done.result.splits) == (20, {"train": 20})
    assert {reason: len(places) for reason, places in done.reasons().items()} == {"missing_media": 4, "malformed": 6}
    assert any("404" in row["message"] for row in done.missing)


def test_laion_from_the_files_of_img2dataset(run_adapter: Any, tmp_path: Path) -> None:
    urls = [f"http://a.example/{n}.jpg" for n in range(22)]
    media = [f"00000/{n:09d}.jpg" for n in range(22) if n not in (1, 7)]
    index = {"00000.parquet": downloads(urls, failed=(1, 2))}
    done = run_adapter("laion", index, media=media, rows=22)
    assert list(done.videos) == [f"{n:09d}" for n in range(22) if n not in (1, 2, 7)]
    assert done.captions["000000004"] == [(0.0, WHOLE, f"caption of {urls[4]}")]
    assert done.reasons() == {"missing_media": [f"00000.parquet row {n}" for n in (1, 2, 7)]}


def test_laion_as_published(run_adapter: Any, tmp_path: Path) -> None:
    urls: list[Any] = [f"http://a.example/{n % 20}.jpg" for n in range(22)]
    texts: list[Any] = [f"Blue sofa {n}" for n in range(22)]
    urls += [None, "", urls[3], "http://never.example/"]
    texts += ["x", "y", None, "z"]
    bad = pyarrow.array([b"caf\xe9" if n == 5 else (url or "").encode() for n, url in enumerate(urls)]).view("string")
    table = {"SAMPLE_ID": list(range(26)), "URL": urls, "TEXT": texts, "similarity": [0.3] * 26}
    broken = {**table, "URL": bad}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "00000.parquet").write_bytes(downloads([str(url) for url in urls[:22]]))
    media = [f"00000/{n:09d}.jpg" for n in range(22)]
    done = run_adapter("laion", {"part-00000.parquet": parquet(table)}, media=media, rows=26)
    # The same URL twice in the index was downloaded twice.
    assert done.captions["000000001"] == [(0.0, WHOLE, "Blue sofa 1")]
    assert done.captions["000000021"] == [(0.0, WHOLE, "Blue sofa 21")]
    assert done.result.videos == 22
    assert {reason: len(places) for reason, places in done.reasons().items()} == {"missing_media": 1, "malformed": 3}
    done = run_adapter("laion", {"part-00000.parquet": parquet(broken)}, media=media, rows=26)
    assert "part-00000.parquet row 5" in done.reasons()["malformed"]


@pytest.mark.parametrize(
    ("dataset", "name", "content", "message"),
    [
        ("coco", "x.json", b'{"images": []}', "keys images; expected a list 'images' with entries"),
        ("cc3m", "x.tsv", b"a,b\n", "no line with one tab"),
        ("cc3m", "x.tsv", b"a\thttp://b\n", "holds no 00000.parquet"),
        ("laion", "x.parquet", b"PAR1 and nothing", "no whole Parquet file"),
        ("laion", "x.parquet", parquet({"a": [1]}), "columns a; expected"),
        ("laion", "x.parquet", parquet({"URL": ["u"], "TEXT": ["t"]}), "holds no 00000.parquet"),
    ],
)
def test_an_index_of_another_data_set_is_refused(
    run_adapter: Any, dataset: str, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(InputFileError, match=message):
        run_adapter(dataset, {name: content}, media=["a.jpg"], rows=0)


def test_without_pyarrow_the_extra_is_named(run_adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(EnvironmentLacking, match=r"clipmill\[parquet\]"):
        run_adapter("laion", {"x.parquet": b""}, media=["a.jpg"], rows=0)
