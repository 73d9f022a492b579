"""The whole of `train compare` on a small store: one run trained before, one that it trains, one that fails."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from shared.cli import guarded
from shared.config import load_config
from shared.errors import RequestError
from train.checkpoint import last_checkpoint
from train.cli import app
from train.compare import compare, parse_level, steps_to
from train.compare_runs import open_entries
from train.compare_table import table
from train.compared import Level
from train.config import FitConfig
from train.evaluate import evaluate
from train.loop import fit

CONFIG = """
store: {store}
run: {run}
model: {{dim: 8, text: {{name: words, word_dim: 6, hidden: 8}}, temperature: {{value: {temperature}}}}}
optim: {{lr: {rate}}}
batch_size: 8
steps: 6
log_every: 1
device: cpu
checkpoint: {{every_epochs: 0}}
evaluate: {{bootstrap: 50, captions: first}}
"""


@pytest.fixture(scope="module")
def configs(tmp_path_factory, small_store):
    folder = tmp_path_factory.mktemp("compare")
    store = small_store(folder / "store", splits={"train": 16, "val": 8})
    rate = {"a <1>": 0.02, "b <1>": 0.02, "c <1>": 1e30}
    temperature = {"a <1>": 0.07, "b <1>": 0.2, "c <1>": 0.07}
    (folder / "configs").mkdir()
    for name, value in temperature.items():
        text = CONFIG.format(store=store, run=folder / "runs" / name[0], temperature=value, rate=rate[name])
        (folder / "configs" / f"{name}.yaml").write_text(text)
    return folder / "configs"


@pytest.fixture(scope="module")
def compared(configs):
    fit(load_config(configs / "a <1>.yaml", FitConfig))
    return compare([str(configs)])


def test_a_run_is_trained_once_and_a_failed_one_is_a_row(configs, compared, tmp_path, capfd):
    found, path = compared
    assert path == configs.parent / "runs" / "compare.html"
    trained, fresh, failed = found.runs
    assert (trained.finished, fresh.finished) == (True, True)
    assert (trained.seconds, trained.peak_memory) == (None, None)
    assert fresh.seconds > 0
    assert fresh.peak_memory > 50 << 20
    assert re.search(r"step \d: the .* is (nan|inf)", failed.failure)
    again, _ = compare([str(configs)], train=False, out=tmp_path / "again.html")
    assert [run.name for run in again.good] == ["a <1>", "b <1>"]
    assert (again.runs[1].metrics, again.runs[1].seconds) == (fresh.metrics, fresh.seconds)
    assert "has no checkpoint: leave --no-train out" in again.runs[2].failure
    assert "training in" not in capfd.readouterr().out


def test_numbers_are_those_of_evaluate(configs, compared):
    run = compared[0].runs[1]
    assert run.metrics == evaluate(last_checkpoint(run.run), out=configs.parent / "m.json")
    assert (run.step, run.checkpoint, run.temperature) == (6, "step-00000006.pt", pytest.approx(0.2))
    assert [step for step, _ in run.loss] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in run.validation] == [2, 4, 6]


def test_table_and_json_say_the_same(compared):
    found, path = compared
    lines = table(found).splitlines()
    assert "split val" in lines[0]
    assert re.match(r"run +R@1 +R@5 +R@10 +MedR +steps to text_to_video.R@10", lines[1])
    way = found.runs[1].metrics["text_to_video"]
    assert f"{100 * way['R@1']:.1f} [" in lines[3]
    assert lines[4].startswith("c <1> failed: ")
    content = json.loads(path.with_suffix(".json").read_text())
    assert [run["name"] for run in content["runs"]] == ["a <1>", "b <1>", "c <1>"]
    assert content["runs"][1]["metrics"]["text_to_video"] == way
    assert set(content["runs"][2]) == {"name", "run", "failure"}
    assert content["level"]["value"] == min(max(v for _, v in run.validation) for run in found.good)


class Page(HTMLParser):
    """Tags, which must close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_no_network(compared):
    text = compared[1].read_text()
    page = Page(text)
    assert not re.search(r"""(src|href|url\()\s*=?\s*["']?(https?:)?//""", text)
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "img")]
    assert "b &lt;1&gt;" in text
    assert "<1>" not in text
    assert "prefers-color-scheme: dark" in text
    pictures = [attrs["aria-label"] for tag, attrs in page.tags if tag == "svg" and attrs.get("role") == "img"]
    assert len(pictures) == 4
    assert "a <1> ends at" in pictures[0]
    assert "mean cosine" in pictures[2]
    assert len([tag for tag, _ in page.tags if tag == "polygon"]) == 4


def test_a_changed_config_is_not_compared(configs, compared, tmp_path, capsys):
    found, _ = compare([str(configs / "a <1>.yaml"), "optim.lr=0.5"], train=False, out=tmp_path / "x.html")
    assert found.runs[0].failure == "the run folder is of another configuration: optim.lr: 0.02 -> 0.5"
    assert "no run has numbers" in table(found)
    code = guarded(
        lambda: app(
            ["compare", "--no-train", "--out", str(tmp_path / "y.html"), str(configs / "a <1>.yaml"), "seed=3"],
            standalone_mode=False,
        )
    )
    assert code == 1
    assert "1 of 1 runs failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (["x.yaml"], {}, r"config x\.yaml does not exist"),
        (["seed=1"], {}, "no config was given"),
        (["ALL", "run=elsewhere"], {}, "have the same run folder elsewhere"),
        (["ALL"], {"level": "text_to_video.R@7=0.5"}, "is not measured"),
        (["ALL"], {"level": "MedR"}, r"give METRIC=VALUE"),
        (["ALL"], {"out": "x.json"}, "goes beside it"),
        (["A", "resume=x.pt"], {}, "set resume=auto"),
        (["A", "val_split=null"], {}, "say with --split"),
        (["A", "run=STORE/run"], {}, "is inside the store"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_training(configs, arguments, options, message):
    places = {"ALL": str(configs), "A": str(configs / "a <1>.yaml")}
    given = [places.get(argument, argument).replace("STORE", str(configs.parent / "store")) for argument in arguments]
    options = {key: configs / value if key == "out" else value for key, value in options.items()}
    with pytest.raises(RequestError, match=message):
        compare(given, **options)


def test_under_torchrun_it_is_refused(configs, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(RequestError, match="leave torchrun out"):
        compare([str(configs)])


def test_other_queries_are_refused_with_the_key_that_evens_them(configs, tmp_path):
    other, text = tmp_path / "other.yaml", (configs / "a <1>.yaml").read_text()
    other.write_text(re.sub("run: .*", "run: other", text).replace("captions: first", "captions: all"))
    with pytest.raises(RequestError, match=r"evaluate\.captions=first, .* evaluate\.captions=all.*for all"):
        compare([str(configs / "a <1>.yaml"), str(other)])


def test_level_is_the_first_validation_that_has_it(configs):
    entries = open_entries([str(configs)], None)
    level = parse_level("text_to_video.R@10=0.5", entries)
    assert level == Level("text_to_video.R@10", 0.5)
    curve = [(2, 0.3), (4, 0.5), (6, 0.4), (8, 0.9)]
    assert steps_to(level, curve) == 4
    assert steps_to(Level("text_to_video.MedR", 0.35), curve) == 2
    assert steps_to(Level("text_to_video.R@10", 0.95), curve) is None


def test_help_names_the_configs_that_are_shipped():
    assert "configs/train/compare" in CliRunner().invoke(app, ["compare", "--help"]).output.replace("\n", " ")
