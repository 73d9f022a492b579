"""`preprocess run` on real files, with and without Ray: same bytes, resumed after kills, redone where needed."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from preprocess.cli import app
from shared.cli import guarded
from shared.store import open_store

CONFIG = """
inputs: {folder}/videos.csv
store: {folder}/store
shard_videos: 3
streams:
  default: {{kind: timm, size: 64}}
  thumbs: {{kind: frames, size: [24, 32], sampling: {{fps: 0.5}}}}
sets:
  default: {{windows: {{candidates: 2}}}}
ray: {{cpus: 2}}
"""


def setup(small_media: Path, folder: Path) -> Path:
    for path in small_media.iterdir():
        shutil.copy(path, folder / path.name)
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(folder=folder))
    return config


def preprocess(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "preprocess", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


def content(store: Path) -> dict[str, bytes]:
    """Everything of a store that has an identity."""
    outside = {".cache", "runs"}
    files = (path for path in store.rglob("*") if path.is_file() and path.relative_to(store).parts[0] not in outside)
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


def wait_for_units(store: Path, run: subprocess.Popen[str], units: int) -> None:
    """Until a run has committed so many units."""
    while True:
        root = store / "store.json"
        streams = json.loads(root.read_bytes())["streams"] if root.exists() else {}
        if "default" in streams and len(streams["default"]["shards"]) >= units:
            return
        assert run.poll() is None, "the run ended before it was killed"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def undisturbed(small_media: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run in one process."""
    folder = tmp_path_factory.mktemp("reference")
    done = preprocess("run", setup(small_media, folder), "engine=here")
    assert done.returncode == 1, done.stderr
    assert "14 inputs: 12 done, 2 failed" in done.stdout
    return folder


@pytest.fixture(scope="module")
def reference(undisturbed: Path) -> dict[str, bytes]:
    """What such a run makes."""
    return content(undisturbed / "store")


@pytest.fixture
def done_before(undisturbed: Path, tmp_path: Path) -> Path:
    """The config of such a run in `tmp_path`, with its inputs and its store: a store is the same wherever it lies."""
    shutil.copytree(undisturbed, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.yaml").write_text(CONFIG.format(folder=tmp_path))
    return tmp_path / "config.yaml"


def test_ray_gives_the_same_bytes_and_a_second_run_does_nothing(
    small_media: Path, tmp_path: Path, reference: dict[str, bytes]
) -> None:
    config = setup(small_media, tmp_path)
    first = preprocess("run", config)
    assert first.returncode == 1, first.stderr
    assert "not_a_media_file" in first.stdout
    assert "missing_file" in first.stdout
    assert content(tmp_path / "store") == reference
    early, *_, last = [line for line in first.stderr.splitlines() if " of 14 videos, " in line]
    assert not early.startswith("14 ")
    assert last.startswith("14 of 14 videos, 42 s of video, ")
    assert re.search("is the slowest stage; |too short to tell what is slowest", first.stdout)
    (record,) = (json.loads(path.read_bytes()) for path in (tmp_path / "store" / "runs").iterdir())
    spent = record["spent"]
    assert (spent["videos"], spent["video_s"]) == (14, pytest.approx(42, abs=0.5))
    assert min(spent["waiting_s"], spent["model_s"], spent["writing_s"], spent["decode_cpu_s"]) > 0
    assert spent["elapsed_s"] >= spent["waiting_s"] + spent["model_s"] + spent["writing_s"]
    again = preprocess("run", config)
    assert again.returncode == 1
    assert "nothing to do" in again.stdout
    assert preprocess("verify", tmp_path / "store").returncode == 0
    assert "Traceback" not in first.stderr + again.stderr


@pytest.mark.parametrize("units_before", [1, pytest.param(3, marks=pytest.mark.full)])
def test_a_killed_run_goes_on_to_the_same_bytes(
    small_media: Path, tmp_path: Path, reference: dict[str, bytes], units_before: int
) -> None:
    config = setup(small_media, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "preprocess", "run", str(config)], stderr=subprocess.PIPE, text=True
    ) as run:
        wait_for_units(tmp_path / "store", run, units_before)
        # Ray's own agents notice the death of their head a minute later; what matters is who could still write.
        family = psutil.Process(run.pid).children(recursive=True)
        workers = [process for process in family if process.name().startswith(("ray::Extraction", "ray::decode"))]
        run.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive, "workers outlive their driver"
    committed = json.loads((tmp_path / "store" / "store.json").read_bytes())["streams"]["default"]["shards"]
    assert len(committed) >= units_before
    resumed = preprocess("run", config)
    assert resumed.returncode == 1, resumed.stderr
    assert f"{14 - 3 * len(committed) if len(committed) < 5 else 0} worked on in this run" in resumed.stdout
    assert content(tmp_path / "store") == reference


def test_sigterm_ends_with_4_and_a_whole_store(small_media: Path, tmp_path: Path) -> None:
    config, local = setup(small_media, tmp_path), tmp_path / "local"
    command = [sys.executable, "-m", "preprocess", "run", str(config), f"ray.scratch={local}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        wait_for_units(tmp_path / "store", run, 1)
        run.terminate()
        _, rest = run.communicate()
    assert run.returncode == 4, rest
    assert "Traceback" not in rest
    assert list(local.iterdir()) == [], "workers in the middle of a unit leave nothing on their own disk"
    assert preprocess("verify", tmp_path / "store").returncode == 0


def test_changed_inputs_are_done_again_and_only_they(
    done_before: Path, draw_video: Callable[..., None], tmp_path: Path, reference: dict[str, bytes]
) -> None:
    draw_video(tmp_path / "clip 4.mp4", seconds=7, hue=1)
    shutil.copy(tmp_path / "clip 1.mp4", tmp_path / "missing.mp4")
    (tmp_path / "0.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:01.000\nquite another text\n")
    done = preprocess("run", done_before, "engine=here")
    assert "extracting 2 videos x 2 streams in 2 units, a shard each (4 input changed)" in done.stderr
    assert "14 inputs: 13 done, 1 failed; 2 worked on in this run" in done.stdout
    assert preprocess("verify", tmp_path / "store").returncode == 0
    with next((tmp_path / "store" / "manifests").glob("*/captions.csv")).open(newline="") as file:
        texts = {row["video_id"]: row["text"] for row in csv.DictReader(file)}
    assert texts["v0"] == "quite another text"
    kept = content(tmp_path / "store").keys() & reference.keys()
    assert sum("features/default" in path and path.endswith(".npy") for path in kept) == 3


def test_a_changed_config_makes_the_stream_again_and_says_why(done_before: Path, tmp_path: Path) -> None:
    done = preprocess("run", done_before, "engine=here", "streams.default.sampling.fps=2")
    assert "sampling.fps: 1.0 -> 2.0" in done.stderr
    assert "14 new" in done.stderr
    assert preprocess("verify", tmp_path / "store").returncode == 0
    root = json.loads((tmp_path / "store" / "store.json").read_bytes())
    assert root["pending"] == {}
    assert len([path for path in root["files"] if path.startswith("features/default") and path.endswith(".npy")]) == 5


def test_a_stream_is_not_made_again_at_the_cost_of_videos_that_are_not_given(done_before: Path, tmp_path: Path) -> None:
    before = content(tmp_path / "store")
    done = preprocess("run", done_before, "engine=here", "streams.default.sampling.fps=2", "--limit", "3")
    assert done.returncode == 2
    assert "would lose their rows" in done.stderr
    assert content(tmp_path / "store") == before


def test_manifests_are_made_again_without_any_video(done_before: Path, tmp_path: Path) -> None:
    for path in tmp_path.glob("*.mp4"):
        path.unlink()
    done = preprocess("manifests", done_before, "sets.default.windows.candidates=1")
    assert done.returncode == 0, done.stderr
    assert "set default: made" in done.stdout
    assert "set default: unchanged" in preprocess("manifests", done_before, "sets.default.windows.candidates=1").stdout
    assert preprocess("verify", tmp_path / "store").returncode == 0


def test_two_runs_on_one_store(small_media: Path, tmp_path: Path) -> None:
    config = setup(small_media, tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "preprocess", "run", str(config), "engine=here"], stderr=subprocess.PIPE, text=True
    ) as run:
        while not (tmp_path / "store" / ".lease").exists():
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGSTOP)
        second = preprocess("run", config, "engine=here")
        os.kill(run.pid, signal.SIGKILL)
    assert second.returncode == 2
    assert f"process {run.pid}" in second.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "none.yaml"], 2, "config none.yaml does not exist"),
        (["run", "{config}", "stroe=x"], 2, "stroe: unknown key; known here:"),
        (["run", "{config}", "inputs=none.csv"], 2, "none.csv does not exist"),
        (["run", "{config}", "streams.default.weights=/none.pth"], 3, "/none.pth"),
        (["run", "{config}", "streams.default.model=resnet5000"], 2, "resnet5000"),
        (["run", "{config}", "streams=[]"], 2, "is not valid"),
        (["run", "{config}", "sets.default.stream=nope"], 2, "expected one of the streams: default, thumbs"),
        (["run", "{config}", "sets.default.stream=thumbs"], 2, "holds pixels"),
        (["run", "{config}", "sets.default.tokenizer.name=/none"], 3, "/none"),
        (["run", "{config}", "store=/proc/none"], 2, "cannot be a store"),
        (["run", "{config}", "ray.scratch={folder}/store/local"], 2, "is inside the store"),
        (["verify", "nowhere"], 2, "nowhere is no store"),
        (["manifests", "{config}"], 2, "is no store"),
    ],
)
def test_wrong_requests_end_with_one_clear_message(
    small_media: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    config = setup(small_media, tmp_path)
    monkeypatch.chdir(tmp_path)
    words = [argument.format(config=config, folder=tmp_path) for argument in arguments]
    assert guarded(lambda: app(words, standalone_mode=False)) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ray.address=127.0.0.1:1", "no Ray cluster"),
        pytest.param("ray.scratch=/proc/none", "ray.scratch", marks=pytest.mark.full),
    ],
)
def test_a_cluster_that_is_not_as_asked_for_is_one_message(
    small_media: Path, tmp_path: Path, change: str, message: str
) -> None:
    done = preprocess("run", setup(small_media, tmp_path), change)
    assert (done.returncode, message in done.stderr) == (3, True), done.stderr
    assert "Traceback" not in done.stderr


def test_inputs_out_of_reach_cost_nothing_that_was_made(done_before: Path, tmp_path: Path) -> None:
    before = content(tmp_path / "store")
    for path in [*tmp_path.glob("clip*.mp4"), *tmp_path.glob("*.vtt")]:
        path.unlink()
    gone = preprocess("run", done_before, "engine=here")
    assert "12 inputs cannot be read now" in gone.stderr
    assert "nothing to do" in gone.stdout
    changed = preprocess("run", done_before, "engine=here", "streams.default.sampling.fps=2")
    assert changed.returncode == 2
    assert "stays as it was: 12 of its videos cannot be read" in changed.stderr
    kept = content(tmp_path / "store")
    assert {path: kept[path] for path in before if path != "store.json"} == {
        path: data for path, data in before.items() if path != "store.json"
    }


def test_pipes_and_devices_are_not_read(small_media: Path, tmp_path: Path) -> None:
    config = setup(small_media, tmp_path)
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "videos.csv").write_text("video_id,video_path\npipe,pipe.mp4\nfolder,.\n")
    for _ in range(2):
        done = preprocess("run", config, "engine=here", timeout=120)
        assert done.returncode == 1
        assert "2 inputs: 0 done, 2 failed" in done.stdout


def test_a_damaged_cache_changes_nothing(done_before: Path, tmp_path: Path) -> None:
    (tmp_path / "store" / ".cache" / "sources.sqlite").write_bytes(b"no database" * 1000)
    assert "nothing to do" in preprocess("run", done_before, "engine=here").stdout


def rows_by_video(store: Path) -> dict[str, bytes]:
    stream = open_store(store).stream("default")
    return {video_id: stream.read(number).tobytes() for number, video_id in enumerate(stream.video_ids)}


def test_another_container_decodes_nothing(done_before: Path, tmp_path: Path) -> None:
    """Also where the inputs are not all given, and after a kill between two shards."""
    before = rows_by_video(tmp_path / "store")
    for path in tmp_path.glob("*.mp4"):
        path.unlink()
    change = [sys.executable, "-c", KILLED_AFTER_TWO_COMMITS, "run", done_before, "engine=here", "container=h5"]
    killed = subprocess.run(change, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    done = preprocess("run", done_before, "engine=here", "container=h5", "--limit", "3")
    assert "keeps what this does not touch, its configuration changed: rows" in done.stderr
    assert "extracting" not in done.stderr
    assert "nothing to do" not in done.stdout
    assert rows_by_video(tmp_path / "store") == before
    root = json.loads((tmp_path / "store" / "store.json").read_bytes())
    assert root["pending"] == {}
    assert {entry["container"] for entry in root["streams"].values()} == {"h5"}
    assert preprocess("verify", tmp_path / "store").returncode == 0


# Two streams, five shards each: the third commit is in the middle of the first stream.
KILLED_AFTER_TWO_COMMITS = """
import os, signal, sys
from shared.store import StoreWriter
commit, commits = StoreWriter.commit, []
def counted(self, *arguments, **changes):
    commits.append(None)
    if len(commits) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(self, *arguments, **changes)
StoreWriter.commit = counted
from preprocess.cli import app
app()
"""


def test_keeping_parts_of_damaged_videos_touches_no_other(small_media: Path, tmp_path: Path) -> None:
    config = setup(small_media, tmp_path)
    damaged = bytearray((tmp_path / "clip 5.mp4").read_bytes())
    middle = damaged.find(b"mdat") + len(damaged) // 3
    damaged[middle : middle + 400] = bytes(400)
    (tmp_path / "clip 5.mp4").write_bytes(damaged)
    first = preprocess("run", config, "engine=here", "sets.kurz.windows.candidates=1")
    assert "decode.keep_partial=true" in first.stdout
    before = rows_by_video(tmp_path / "store")
    kept = preprocess("run", config, "engine=here", "decode.keep_partial=true")
    assert "sets of it that this config does not name must be made again afterwards: 'kurz'" in kept.stderr
    assert "set 'kurz', which this config does not name, cannot be used any more" in kept.stdout
    assert """manifests CONFIG 'sets.kurz={"windows": {"candidates": 1}}'""" in kept.stdout
    assert "extracting 1 video x 2 streams in 1 unit, a shard each (2 new)" in kept.stderr
    now = rows_by_video(tmp_path / "store")
    assert now.keys() - before.keys() == {"v5"}
    assert {video_id: now[video_id] for video_id in before} == before
    again = preprocess("run", config, "engine=here")
    assert "extracting 1 video x 2 streams in 1 unit, a shard each (2 new)" in again.stderr
    assert rows_by_video(tmp_path / "store") == before


def test_a_damaged_video_that_is_not_given_is_not_forgotten(small_media: Path, tmp_path: Path) -> None:
    """Neither as a failure nor as a part, when `keep_partial` changes while only some inputs are given."""
    config = setup(small_media, tmp_path)
    damaged = bytearray((tmp_path / "clip 5.mp4").read_bytes())
    middle = damaged.find(b"mdat") + len(damaged) // 3
    damaged[middle : middle + 400] = bytes(400)
    (tmp_path / "clip 5.mp4").write_bytes(damaged)
    for before, after in (("false", "true"), ("true", "false")):
        store = f"store={tmp_path / before}"
        preprocess("run", config, "engine=here", store, f"decode.keep_partial={before}")
        whole = content(tmp_path / before)
        done = preprocess("run", config, "engine=here", store, f"decode.keep_partial={after}", "--limit", "3")
        assert done.returncode == 2, done.stderr
        assert "(such as 'v5') are not among the inputs" in done.stderr
        assert content(tmp_path / before) == whole
