"""Whatever is killed whenever, the store is the old one or the new one; whatever bit flips, it is found.

The kills are enumerated, not only random: a writer makes seven changes in a process of its own and is killed with
SIGKILL before, in and after every call that touches the disk. The default run takes a seeded sample, `-m full` all.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from shared.errors import StoreError
from shared.fingerprint import hash_bytes, sealed_json
from shared.store import open_store
from shared.verify import verify_store

TOOLS = runpy.run_path(str(Path(__file__).with_name("store_faults.py")))
CONTRACT = Path(__file__).resolve().parents[1] / "contract"
SAMPLE, DOUBLE, FLIPS = 40, 10, 200
ALL_DOUBLE, ALL_FLIPS = 200, 1000


def content(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


class Undisturbed:
    """What the writer does when nobody kills it: its events, the root after each change, the final bytes."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        trace, roots = folder / "trace.json", folder / "roots"
        roots.mkdir()

        def work() -> None:
            faults = TOOLS["Faults"]()
            faults.install()
            TOOLS["change_store"](self.store, [])
            events = list(faults.events)
            trace.write_text(json.dumps(events))

        assert TOOLS["in_fork"](work) == 0
        self.events = [tuple(event) for event in json.loads(trace.read_text())]
        self.final = content(self.store)
        self.roots = self._roots(folder / "steps")

    def _roots(self, path: Path) -> list[str]:
        """The digest of the root of an empty store, and after each change."""
        from shared.store import open_writer

        with open_writer(path) as writer:
            roots = [hash_bytes(writer.root.to_bytes())]
            for change in TOOLS["CHANGES"]:
                change(writer)
                roots.append(hash_bytes(writer.root.to_bytes()))
        return roots

    def roots_replaced_before(self, kill_at: int) -> int:
        """How many times the root had been replaced when event `kill_at` was about to happen."""
        root = str(self.store / "store.json")
        return sum(
            event[:3] in (("after", "replace", root), ("after", "rename", root)) for event in self.events[: kill_at + 1]
        )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def fast_folder(tmp_path):
    """In memory where there is some: a kill does not lose what was written, so what fsync costs buys nothing here."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="clipmill-faults-", dir=memory) as folder:
        yield Path(folder)


def killed_run(path: Path, roots: list[str], kill_at: int) -> None:
    def work() -> None:
        TOOLS["Faults"](kill_at).install()
        TOOLS["change_store"](path, roots)

    assert TOOLS["in_fork"](work) == -signal.SIGKILL


def is_old_or_new(path: Path, roots: list[str]) -> int:
    """Assert that a killed writer left one of its roots and nothing wrong; which of them, -1 for no store yet."""
    if not (path / "store.json").exists():
        with pytest.raises(StoreError):
            open_store(path)
        return -1
    damages = verify_store(path)
    assert all("orphan" in damage.what for damage in damages), damages
    return roots.index(hash_bytes((path / "store.json").read_bytes()))


def goes_on(path: Path, undisturbed: Undisturbed) -> None:
    roots = undisturbed.roots if (path / "store.json").exists() else []
    assert TOOLS["in_fork"](lambda: TOOLS["change_store"](path, roots)) == 0
    assert content(path) == undisturbed.final
    assert not [folder for folder in path.rglob("*") if folder.is_dir() and not any(folder.iterdir())]


def kill_and_go_on(folder: Path, undisturbed: Undisturbed, kill_at: int) -> None:
    path = folder / f"killed-{kill_at}"
    killed_run(path, [], kill_at)
    found = is_old_or_new(path, undisturbed.roots)
    # The first root is that of the empty store.
    assert found == undisturbed.roots_replaced_before(kill_at) - 1, undisturbed.events[kill_at]
    goes_on(path, undisturbed)
    shutil.rmtree(path)


def test_the_undisturbed_run_is_whole_and_makes_every_kind_of_call(undisturbed):
    assert verify_store(undisturbed.store) == []
    assert len(undisturbed.roots) == len(set(undisturbed.roots)) == len(TOOLS["CHANGES"]) + 1
    calls = {call for _, call, _, _ in undisturbed.events}
    assert calls >= {"create", "file write", "truncate", "fsync", "replace", "unlink", "mkdir", "rmdir"}
    assert calls >= {"resize", "__setitem__", "flush", "close"}, "HDF5's, too"
    assert undisturbed.roots_replaced_before(len(undisturbed.events)) == len(undisturbed.roots)


def test_killed_at_a_sample_of_calls(fast_folder, undisturbed):
    events = range(len(undisturbed.events))
    near_roots = [n for n, (_, _, path, _) in enumerate(undisturbed.events) if path.endswith("/store.json")]
    for kill_at in sorted({*random.Random(0).sample(events, SAMPLE), *near_roots[:6], 0, events[-1]}):
        kill_and_go_on(fast_folder, undisturbed, kill_at)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_killed_at_every_call(fast_folder, undisturbed):
    for kill_at in range(len(undisturbed.events)):
        kill_and_go_on(fast_folder, undisturbed, kill_at)


def kill_twice(folder: Path, undisturbed: Undisturbed, seeds: range) -> None:
    """The run that goes on after a kill is killed, too: recovery must be as safe as the first run."""
    killed = 0
    for seed in seeds:
        chance = random.Random(seed)
        path = folder / f"twice-{seed}"
        killed_run(path, [], chance.randrange(len(undisturbed.events)))
        first = is_old_or_new(path, undisturbed.roots)
        again = TOOLS["Faults"](chance.randrange(60))

        def work(path: Path = path, again: object = again, first: int = first) -> None:
            again.install()
            TOOLS["change_store"](path, undisturbed.roots if first >= 0 else [])

        killed += TOOLS["in_fork"](work) == -signal.SIGKILL
        assert is_old_or_new(path, undisturbed.roots) >= first
        goes_on(path, undisturbed)
        shutil.rmtree(path)
    assert killed > len(seeds) // 2


def test_killed_twice(fast_folder, undisturbed):
    kill_twice(fast_folder, undisturbed, range(DOUBLE))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_killed_twice_many_times(fast_folder, undisturbed):
    kill_twice(fast_folder, undisturbed, range(DOUBLE, ALL_DOUBLE))


def test_nothing_unsynced_is_named_by_a_root(undisturbed):
    """A kill loses nothing that was written, a power cut everything that was not synced: the order of calls decides."""
    store = str(undisturbed.store)
    unsynced: set[str] = set()  # files with content, and folders with entries, that may be lost
    renamed_roots = 0
    for when, call, path, source in undisturbed.events:
        if when != "after":
            continue
        if call in ("file write", "truncate", "create", "create_dataset", "close", "__setitem__"):
            unsynced.add(path)
        elif call == "fsync":
            unsynced.discard(path)
        elif call == "mkdir":
            unsynced.add(str(Path(path).parent))
        elif call in ("replace", "rename"):
            assert source not in unsynced, f"{path} gets its name before its content is durable"
            if path == f"{store}/store.json":
                renamed_roots += 1
                lost = {name for name in unsynced if name.startswith(f"{store}/") and not name.startswith(f"{store}/.")}
                assert lost == set(), "a root names what may be lost"
                assert renamed_roots in (1, len(undisturbed.roots)) or store not in unsynced, "new folders may be lost"
            unsynced.add(str(Path(path).parent))
    assert renamed_roots == len(undisturbed.roots)
    last_fsync = [path for when, call, path, _ in undisturbed.events if (when, call) == ("after", "fsync")][-1]
    assert last_fsync == store, "the last root's own name must be durable"


def flip_bits(store: Path, count: int) -> None:
    """Every flip is found and its file named. Files are drawn evenly, so that small ones get their share."""
    files = sorted(file for file in store.rglob("*") if file.is_file() and file.stat().st_size)
    chance = random.Random(count)
    missed = []
    for number in range(count):
        file = files[number % len(files)]
        data = file.read_bytes()
        bit = chance.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        if file.relative_to(store).as_posix() not in {damage.path for damage in verify_store(store)}:
            missed.append((file.name, bit))
        file.write_bytes(data)
    assert missed == []
    assert verify_store(store) == []


@pytest.fixture
def store_with_runs(tmp_path, monkeypatch):
    """A store with every kind of file that clipmill answers for: run records and compiled indexes, too."""
    golden = max(CONTRACT.glob("golden_store_v*"))
    store = tmp_path / "store"
    shutil.copytree(golden, store)
    (store / "runs").mkdir()
    (store / "runs" / "20260101-000000.json").write_bytes(sealed_json({"host": "a", "workers": 4, "seconds": 1.5}))
    with monkeypatch.context() as patch:
        patch.setattr("shared.index_cache.SMALLEST", 0)
        opened = open_store(store)
        for name in opened.root.streams:
            opened.stream(name)
        splits = [(name, split) for name, entry in opened.root.sets.items() for split in entry.splits]
        for name, split in splits:
            opened.manifest_set(name).windows(split)
    assert len(list((store / ".cache" / "index").glob("*.idx"))) == len(opened.root.streams) + len(splits)
    return store


def test_random_bit_flips_are_all_found(store_with_runs):
    flip_bits(store_with_runs, FLIPS)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_thousand_random_bit_flips_are_all_found(store_with_runs):
    flip_bits(store_with_runs, ALL_FLIPS)
