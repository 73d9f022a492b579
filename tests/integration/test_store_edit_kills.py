"""Edits of a store that are killed: it is the old one or the new one, and the same command again ends the work."""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.edit.compact import compact
from shared.edit.merge import merge_stores
from shared.edit.remove import remove_videos
from shared.edit.repair import repair_store
from shared.edit.subset import subset_store
from shared.edit.target import existing_store
from shared.errors import StoreError
from shared.verify import verify_store

TOOLS = runpy.run_path(str(Path(__file__).with_name("store_faults.py")))
GOLDEN = max((Path(__file__).resolve().parents[1] / "contract").glob("golden_store_v*"))
SAMPLE = 8


def removes(folder: Path) -> None:
    with existing_store(folder / "store") as writer:
        remove_videos(writer, ["zoo", "cat"])


def compacts(folder: Path) -> None:
    with existing_store(folder / "store") as writer:
        compact(writer)


def takes_a_subset(folder: Path) -> None:
    subset_store(GOLDEN, folder / "store", ["zoo", "broken", "cat"])


def merges(folder: Path) -> None:
    merge_stores(folder / "store", [GOLDEN, folder / "other"])


def repairs(folder: Path) -> None:
    repair_store(folder / "store")


def prepare(folder: Path, edit: Callable[[Path], None]) -> Path:
    folder.mkdir()
    if edit in (removes, compacts, repairs):
        shutil.copytree(GOLDEN, folder / "store")
    if edit is merges:
        subset_store(GOLDEN, folder / "other", ["küche", "zoo"])
    if edit is repairs:
        for pattern in ("features/wide/00001-*.h5", "captions/*.gz", "manifests/words-*/tokens.npy"):
            (path,) = (folder / "store").glob(pattern)
            path.write_bytes(path.read_bytes()[:-9])
    return folder


def content(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.fixture
def fast_folder(tmp_path):
    """In memory where there is some, as in test_store_faults.py."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="clipmill-edits-", dir=memory) as folder:
        yield Path(folder)


def undisturbed(folder: Path, edit: Callable[[Path], None]) -> int:
    """Do the edit in a process that counts its events; how many there were."""

    def work() -> None:
        faults = TOOLS["Faults"]()
        faults.install()
        edit(folder)
        events = len(faults.events)
        (folder / "events.json").write_text(json.dumps(events))

    assert TOOLS["in_fork"](work) == 0
    return int(json.loads((folder / "events.json").read_text()))


def killed_and_done_again(fast_folder: Path, edit: Callable[[Path], None], sample: int | None) -> None:
    whole = prepare(fast_folder / "whole", edit)
    before = (whole / "store" / "store.json").read_bytes() if (whole / "store").exists() else None
    events = undisturbed(whole, edit)
    after = content(whole / "store")
    assert verify_store(whole / "store") == []
    assert before != after["store.json"]
    points = range(events) if sample is None else sorted({*random.Random(0).sample(range(events), sample), events - 1})
    for kill_at in points:
        folder = prepare(fast_folder / f"killed-{kill_at}", edit)

        def work(folder: Path = folder, kill_at: int = kill_at) -> None:
            TOOLS["Faults"](kill_at).install()
            edit(folder)

        assert TOOLS["in_fork"](work) == -signal.SIGKILL
        if (folder / "store" / "store.json").exists():
            damages = [damage for damage in verify_store(folder / "store") if "orphan" not in damage.what]
            assert not damages or (folder / "store" / "store.json").read_bytes() == before, kill_at
            assert not damages or edit is repairs, kill_at
        if edit in (takes_a_subset, merges) and content(folder / "store").get("store.json") == after["store.json"]:
            with pytest.raises(StoreError, match="is a store already"):
                edit(folder)  # it was done, but for what lies outside of the store
        else:
            assert TOOLS["in_fork"](lambda folder=folder: edit(folder)) == 0, kill_at
            assert content(folder / "store") == after, kill_at
        shutil.rmtree(folder)


EDITS = (removes, compacts, takes_a_subset, merges, repairs)


@pytest.mark.parametrize("edit", EDITS)
def test_killed_at_a_sample_of_calls(fast_folder, edit):
    killed_and_done_again(fast_folder, edit, SAMPLE)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("edit", EDITS)
def test_killed_at_every_call(fast_folder, edit):
    killed_and_done_again(fast_folder, edit, None)
