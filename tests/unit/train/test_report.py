from __future__ import annotations

import base64
import io
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from PIL import Image

from shared.errors import DamageFound, RequestError
from shared.store import open_store
from train.config import FitConfig
from train.data import WindowData
from train.embedded import EmbeddedSplit
from train.gallery import ask, choose, expected_ranks
from train.loop import fit
from train.report import write_report
from train.retrieval import window_names
from train.thumbnails import Thumbnails, data_uri, find_thumbnails


def train(folder, store):
    model = {"dim": 8, "text": {"name": "words", "word_dim": 6, "hidden": 8}}
    values = {"store": store, "run": folder / "run <1>", "model": model, "batch_size": 8, "steps": 6, "log_every": 1}
    config = FitConfig.model_validate(values | {"device": "cpu"})
    fit(config)
    return config


@pytest.fixture(scope="module")
def pictured(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("report")
    return train(folder, small_store(folder / "store", splits={"train": 12, "val": 6}, thumbs=True))


class Page(HTMLParser):
    """Checks that tags close in order, and collects them."""

    VOID = ("meta", "img")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def test_page_is_whole_and_needs_no_network(pictured):
    text = write_report(pictured.run).read_text()
    page = Page(text)
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?(https?:)?//""", text)
    assert page.named("script") == page.named("link") == []
    assert "Run run &lt;1&gt;" in text
    charts = page.named("svg")
    assert len(charts) == 6
    assert all(chart["role"] == "img" and "at step" in chart["aria-label"] for chart in charts)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    images = page.named("img")
    assert images
    assert all(image["alt"] and image["src"].startswith("data:image/jpeg;base64,") for image in images)
    rights = len([item for item in page.named("li") if item.get("class") == "right"])
    assert rights == len(page.named("article"))


def test_without_pictures_the_page_says_why(tmp_path, small_store):
    config = train(tmp_path, small_store(tmp_path / "store", splits={"train": 12, "val": 6}))
    text = write_report(config.run, out=tmp_path / "page.html").read_text()
    assert Page(text).named("img") == []
    assert "has no stream of single frames. Add one" in text


def test_picture_is_the_row_nearest_to_the_middle(pictured):
    store = open_store(pictured.store)
    data = WindowData(store, "default", "val")
    thumbnails = find_thumbnails(store, data)
    assert isinstance(thumbnails, Thumbnails)
    taken = []
    rows = np.zeros((15, 12, 16, 3), np.uint8)
    rows[:] = np.arange(15)[:, None, None, None] * 15
    for window in range(3):
        thumbnails.stream.read = lambda video: rows
        uri = thumbnails.picture(window)
        picture = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        assert picture.size == (16, 12)
        taken.append(round(np.asarray(picture).mean() / 15))
    # Windows of 2, 3 and 4 rows from rows 0, 5 and 10: middles at 1.0 (rows 0 and 1 are equally near), 6.5 and 12.0.
    assert taken == [0, 6, 11]


def test_data_uri_is_a_jpeg_of_the_pixels():
    picture = np.zeros((10, 20, 3), np.uint8)
    picture[:, :, 0] = 200
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(data_uri(picture).partition(",")[2]))))
    assert decoded.shape == (10, 20, 3)
    assert np.abs(decoded.astype(int) - picture).max() < 6


def test_ranks_and_the_queries_that_are_shown(pictured):
    store = open_store(pictured.store)
    data = WindowData(store, "default", "val")
    video_ND = torch.eye(18)
    text_ND = torch.eye(18)
    text_ND[3] = torch.linspace(1, 0, 18)
    text_ND[4] = 1.0
    embedded = EmbeddedSplit(video_ND, text_ND[1:], torch.arange(17), torch.arange(1, 18))
    rank_N = expected_ranks(embedded)
    assert rank_N[0].isnan()
    assert rank_N[1:6].tolist() == [1, 1, 4, 9.5, 1]
    sample, missed = choose(rank_N, 5, 6)
    assert missed == [4, 3]
    assert (sample[0], sample[-1], len(sample)) == (1, 17, 5)
    query = ask(3, 4.0, embedded, data, window_names(data), None, count=3)
    assert [(a.place, a.right) for a in query.answers] == [(1, False), (2, False), (3, False), (4, True)]
    assert query.answers[0].name == "val000 @ 0.0-2.0 s"
    assert query.text == data.caption_text(3)


def test_where_no_page_can_be_written_is_refused(pictured, tmp_path):
    with pytest.raises(RequestError, match=r"/proc/x\.html cannot be written"):
        write_report(pictured.run, out=tmp_path.__class__("/proc/x.html"))
    with pytest.raises(RequestError, match="is inside the store"):
        write_report(pictured.run, out=pictured.store / "report.html")


def test_a_log_of_other_settings_is_drawn_and_garbage_is_damage(pictured, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(pictured.run, run)
    log = run / "metrics.jsonl"
    log.write_bytes(b'{"step": 1, "loss": 2.0}\n{"step": 1, "validation": {"text_to_video": {"R@7": 0.5}}}\n')
    assert len(Page(write_report(run).read_text()).named("svg")) == 1
    log.write_bytes(b"\xff\x00\n" + log.read_bytes())
    with pytest.raises(DamageFound, match=r"metrics\.jsonl line 1 is not a record"):
        write_report(run)
