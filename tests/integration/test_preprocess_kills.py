"""The same bytes from any number of workers, and whatever is killed at whatever moment; nothing is done twice."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster

from preprocess.config import PreprocessConfig
from preprocess.extraction import Progress
from preprocess.run import run
from shared.store import open_store
from shared.verify import verify_store
from shared.words import counted

INPUTS = 14  # of `small_media`, two of which are bad
UNIT = 3
SETTINGS: dict[str, Any] = {
    "streams": {
        "default": {"kind": "timm", "size": 32},
        "thumbs": {"kind": "frames", "size": 24, "sampling": {"fps": 0.5}},
    },
    "shard_videos": UNIT,
}
VICTIMS = {"driver": "", "actor": "ray::Extraction", "decoder": "ray::decode"}


def moments(count: int) -> list[tuple[str, int, float, bool]]:
    """(who is killed, after how many committed units, how many seconds later, with a local scratch), from one seed."""
    dice = random.Random(20260)
    return [(list(VICTIMS)[n % 3], dice.randrange(4), dice.uniform(0, 0.5), n % 2 == 1) for n in range(count)]


def write_config(small_media: Path, folder: Path, **ray: object) -> Path:
    path = folder / "config.yaml"
    paths = {"inputs": str(small_media / "videos.csv"), "store": str(folder / "store")}
    # JSON is YAML.
    path.write_text(json.dumps({**SETTINGS, **paths, "ray": {"cpus": 2, "object_store_mib": 128, **ray}}))
    return path


def content(store: Path) -> dict[str, bytes]:
    """Everything of a store that has an identity."""
    outside = {".cache", "runs"}
    files = (path for path in store.rglob("*") if path.is_file() and path.relative_to(store).parts[0] not in outside)
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


def committed(store: Path) -> int:
    """Videos whose rows, or failures, are in the store for good."""
    if not (store / "store.json").exists():  # killed before it made one
        return 0
    stream = open_store(store).root.streams.get("default")
    return sum(ref.videos + ref.failed for ref in stream.shards) if stream else 0


def records(store: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in sorted((store / "runs").glob("*.json"))]


@contextmanager
def started(config: Path, store: Path, units: int) -> Iterator[subprocess.Popen[str]]:
    """`preprocess run` in a process of its own, once it has committed so many units, or has ended."""
    command = [sys.executable, "-m", "preprocess", "run", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None and units_in(store) < units:
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def units_in(store: Path) -> int:
    root = store / "store.json"
    streams = json.loads(root.read_bytes())["streams"] if root.exists() else {}
    return len(streams["default"]["shards"]) if "default" in streams else 0


def workers(process: subprocess.Popen[str], name: str) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.name().startswith(name):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def kill_one(process: subprocess.Popen[str], name: str) -> bool:
    """SIGKILL to the first worker that is seen at such work; False when the run ends without one."""
    while process.poll() is None:
        for victim in workers(process, name):
            with suppress(psutil.NoSuchProcess):
                victim.suspend()  # so that it is still at it when it is killed
                if victim.name().startswith(name):
                    victim.kill()
                    return True
                victim.resume()
        time.sleep(0.005)
    return False


def kill_driver(process: subprocess.Popen[str]) -> bool:
    """SIGKILL to the run itself, and wait for its workers to end; False when it had ended before."""
    if process.poll() is not None:
        return False
    alive = [one for name in ("ray::Extraction", "ray::decode") for one in workers(process, name)]
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Ray's own agents notice the death of their head a minute later; what matters is who could still write.
    _, alive = psutil.wait_procs([one for one in alive if one.is_running()], timeout=60)
    assert not alive, "workers outlive their driver"
    return process.returncode == -signal.SIGKILL


def kill_at(config: Path, store: Path, victim: str, units: int, delay: float) -> bool:
    """A run with one kill, to its end. False when nothing of that kind was left to be killed."""
    with started(config, store, units) as process:
        time.sleep(delay)
        if victim == "driver":
            return kill_driver(process)
        hit = kill_one(process, VICTIMS[victim])
        _, errors = process.communicate()
        assert process.returncode == 1, errors  # two inputs are bad on purpose, nothing else failed
    return hit


def earlier(units: int, delay: float) -> Iterator[tuple[int, float]]:
    """A moment, and those to try instead when the run was over by then."""
    yield units, delay
    yield from ((fewer, 0.0) for fewer in range(units, -1, -1))


@pytest.fixture(scope="module")
def reference(small_media: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an undisturbed run in one process makes."""
    store = tmp_path_factory.mktemp("reference") / "store"
    make(small_media, store, engine="here")
    return content(store)


def make(small_media: Path, store: Path, **settings: object) -> None:
    paths = {"inputs": small_media / "videos.csv", "store": store}
    config = PreprocessConfig.model_validate({**SETTINGS, **paths, **settings})
    run(config, Progress(note=lambda _: None, units=lambda *_: None))


@pytest.mark.parametrize(
    "count",
    [*(pytest.param(few, marks=pytest.mark.full) for few in (1, 2)), 4],
    ids=lambda count: f"{count} decoders and actors",
)
def test_the_number_of_workers_changes_nothing(
    small_media: Path, tmp_path: Path, reference: dict[str, bytes], count: int
) -> None:
    scratch = tmp_path / "local" if count == 4 else None
    ray = {"cpus": count, "actors": count, "object_store_mib": 128, "videos_ahead": count - 1, "scratch": scratch}
    make(small_media, tmp_path / "store", ray=ray)
    assert content(tmp_path / "store") == reference
    assert scratch is None or list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("victim", "at_units", "at_delay", "local"),
    [pytest.param(*moment, marks=() if n in (1, 8) else pytest.mark.full) for n, moment in enumerate(moments(30))],
)
@pytest.mark.timeout(600)
def test_kills(
    small_media: Path,
    tmp_path: Path,
    reference: dict[str, bytes],
    victim: str,
    at_units: int,
    at_delay: float,
    local: bool,
) -> None:
    for units, delay in earlier(at_units, at_delay):
        folder = tmp_path / f"{units}-{delay:.3f}"
        folder.mkdir()
        scratch = folder / "local"
        config, store = write_config(small_media, folder, scratch=str(scratch) if local else None), folder / "store"
        if kill_at(config, store, victim, units, delay):
            break
    else:
        pytest.fail(f"no {victim} was there to be killed at any moment")
    done = committed(store) if victim == "driver" else 0
    if victim == "driver":
        assert done >= min(INPUTS, UNIT * units)
        resumed = subprocess.run(
            [sys.executable, "-m", "preprocess", "run", str(config)], capture_output=True, text=True
        )
        assert resumed.returncode == 1, resumed.stderr
        announced = f"extracting {counted(INPUTS - done, 'video')}"
        assert (announced in resumed.stderr) == (done < INPUTS)
        assert done == INPUTS or [record["extracted"] for record in records(store)] == [INPUTS - done]
    else:
        assert [record["extracted"] for record in records(store)] == [INPUTS]
    assert content(store) == reference
    assert verify_store(store) == []
    assert not local or done == INPUTS or list(scratch.iterdir()) == []


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_host_is_lost(small_media: Path, tmp_path: Path, reference: dict[str, bytes]) -> None:
    host = {"num_cpus": 1, "object_store_memory": 128 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**host, "include_dashboard": False})
    try:
        second = cluster.add_node(**host)
        config = write_config(small_media, tmp_path, address=cluster.address)
        with started(config, tmp_path / "store", 1) as process:
            assert process.poll() is None, "the run ended before the host was lost"
            cluster.remove_node(second, allow_graceful=False)
            _, errors = process.communicate()
        assert process.returncode == 1, errors
    finally:
        cluster.shutdown()
    assert content(tmp_path / "store") == reference
    assert [record["extracted"] for record in records(tmp_path / "store")] == [INPUTS]


@pytest.mark.full
def test_a_full_local_disk_ends_with_4_and_leaves_nothing(small_media: Path, tmp_path: Path, small_disk: Path) -> None:
    store = tmp_path / "store"
    config = write_config(small_media, tmp_path, scratch=str(small_disk))
    large = "streams.thumbs={kind: frames, size: 128, sampling: {fps: 5}}"
    command = [sys.executable, "-m", "preprocess", "run", str(config), large]
    full = subprocess.run(command, capture_output=True, text=True)
    assert full.returncode == 4, full.stderr
    assert f"no space left while writing {small_disk}" in full.stderr
    assert list(small_disk.iterdir()) == []
    assert verify_store(store) == []
    done = subprocess.run([*command, "ray.scratch=null"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert committed(store) == INPUTS
