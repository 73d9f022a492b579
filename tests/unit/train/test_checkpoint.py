from __future__ import annotations

import io
import resource
from pathlib import Path

import pytest
import torch

from shared.errors import DamageFound, InputFileError, RequestError, StoppedEarly
from train.checkpoint import (
    _seal,
    best_path,
    checkpoint_path,
    differences,
    drop_old,
    drop_unfinished,
    gather_random_states,
    last_checkpoint,
    load_checkpoint,
    random_state,
    resolve_checkpoint,
    restore_random_state,
    save_checkpoint,
    set_aside,
    step_of,
)
from train.distributed import World

ALONE = World(0, 1, 0, torch.device("cpu"))


def test_round_trip_of_tensors_and_values(tmp_path):
    path = checkpoint_path(tmp_path, 12)
    content = {"weights": {"a": torch.arange(5.0)}, "names": ["x"], "best": None, "step": 3}
    save_checkpoint(path, content)
    loaded = load_checkpoint(path)
    assert torch.equal(loaded["weights"]["a"], torch.arange(5.0))
    assert (loaded["names"], loaded["best"], loaded["step"]) == (["x"], None, 3)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert torch.load(path, weights_only=True)["step"] == 3


def test_an_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = checkpoint_path(tmp_path, 1)
    save_checkpoint(path, {"step": 1})

    def torn(content, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", torn)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path)["step"] == 1
    assert last_checkpoint(tmp_path) == path
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_full_disk_in_the_middle_of_a_save_is_told_as_that(tmp_path):
    path = checkpoint_path(tmp_path, 1)
    path.parent.mkdir()
    path.with_name(f".{path.name}.tmp").symlink_to("/dev/full")
    with pytest.raises(StoppedEarly, match=rf"no space left while writing {path}: .*; free some space"):
        save_checkpoint(path, {"weight": torch.zeros(1 << 16)})
    assert list(path.parent.iterdir()) == []


def test_a_file_that_may_not_become_so_large_is_told_as_that(tmp_path):
    path = checkpoint_path(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        with pytest.raises(StoppedEarly, match=rf"may not become as large as that while writing {path}: .*ulimit -f"):
            save_checkpoint(path, {"weight": torch.zeros(1 << 16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(path.parent.iterdir()) == []


def test_an_interrupt_while_torch_writes_stays_one(tmp_path, monkeypatch):
    class Interrupting(io.BytesIO):
        def write(self, data):
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "open", lambda *_: Interrupting())
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(checkpoint_path(tmp_path, 1), {"weight": torch.zeros(9)})


def test_last_and_best_and_how_many_stay(tmp_path):
    assert last_checkpoint(tmp_path) is None
    with pytest.raises(RequestError, match="has no checkpoint yet"):
        resolve_checkpoint(tmp_path)
    for step in (2, 10, 100_000_000, 9):
        save_checkpoint(checkpoint_path(tmp_path, step), {"step": step})
    assert last_checkpoint(tmp_path) == checkpoint_path(tmp_path, 100_000_000)
    assert resolve_checkpoint(tmp_path) == last_checkpoint(tmp_path)
    save_checkpoint(best_path(tmp_path), {"step": 9})
    drop_old(tmp_path, 2, 100_000_000)
    names = {path.name for path in best_path(tmp_path).parent.iterdir()}
    assert names == {"best.pt", "step-00000010.pt", "step-100000000.pt"}
    assert resolve_checkpoint(tmp_path) == best_path(tmp_path)


def test_what_was_just_saved_stays_beside_those_of_more_steps(tmp_path):
    for step in (3, 6, 7, 15, 18):
        save_checkpoint(checkpoint_path(tmp_path, step), {"step": step})
    drop_old(tmp_path, 2, 7)
    assert [step_of(path) for path in sorted(checkpoint_path(tmp_path, 0).parent.iterdir())] == [6, 7, 15, 18]


def test_a_branch_that_is_left_is_set_aside_and_never_written_over(tmp_path):
    folder = checkpoint_path(tmp_path, 0).parent
    assert set_aside(tmp_path, 3) == []
    for branch in ("first", "second", "third"):
        for step in (3, 6, 9):
            save_checkpoint(checkpoint_path(tmp_path, step), {"branch": branch})
        moved = set_aside(tmp_path, 3)
        assert last_checkpoint(tmp_path) == checkpoint_path(tmp_path, 3)
    assert [path.name for path in moved] == ["left-3-step-00000006.pt", "left-3-step-00000009.pt"]
    found = {path.name: load_checkpoint(path)["branch"] for path in folder.glob("left-*9.pt")}
    names = ("left-step-00000009.pt", "left-2-step-00000009.pt", "left-3-step-00000009.pt")
    assert found == dict(zip(names, ("first", "second", "third"), strict=True))


def test_what_a_killed_process_left_half_written_is_deleted(tmp_path):
    save_checkpoint(best_path(tmp_path), {})
    for path in (tmp_path, best_path(tmp_path).parent):
        (path / ".step-00000003.pt.tmp").write_bytes(b"half")
        (path / ".config.yaml.tmp").write_bytes(b"of another writer")
    drop_unfinished(tmp_path)
    assert not list(tmp_path.rglob("*.pt.tmp"))
    assert len(list(tmp_path.rglob("*"))) == 4


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(RequestError, match="does not exist"):
        load_checkpoint(tmp_path / "none.pt")
    text = tmp_path / "text.pt"
    text.write_text("hello")
    with pytest.raises(InputFileError, match="is no checkpoint"):
        load_checkpoint(text)
    other = tmp_path / "other.pt"
    torch.save({"version": 1}, other)
    with pytest.raises(InputFileError, match="is no checkpoint"):
        load_checkpoint(other)
    save_checkpoint(other, {"version": 99})
    with pytest.raises(InputFileError, match="version 99, expected 2"):
        load_checkpoint(other)
    torch.save([1, 2], other)
    _seal(other)
    with pytest.raises(InputFileError, match="is no checkpoint: it holds a list"):
        load_checkpoint(other)


class Evil:
    def __reduce__(self):
        return print, ("executed",)


def test_nothing_in_a_file_is_executed(tmp_path, capsys):
    path = tmp_path / "evil.pt"
    save_checkpoint(path, {"x": Evil()})
    with pytest.raises(InputFileError, match=r"is no checkpoint .* which could be made to run a program") as refused:
        load_checkpoint(path)
    assert "weights_only" not in str(refused.value)
    assert "executed" not in capsys.readouterr().out


def test_generators_go_on_where_they_were():
    torch.manual_seed(5)
    torch.rand(3)
    states = gather_random_states(random_state(ALONE.device), ALONE)
    expected = torch.rand(4)
    torch.manual_seed(6)
    assert restore_random_state(states, ALONE)
    assert torch.equal(torch.rand(4), expected)
    assert not restore_random_state(states, World(0, 2, 0, torch.device("cpu")))


def test_differences_name_each_leaf():
    before = {"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "seed": 0, "gone": 1}
    now = {"optim": {"lr": 0.2, "betas": [0.9, 0.99]}, "seed": 0, "new": {"a": 1}}
    assert differences(before, now) == ["gone: 1 -> None", "new: None -> {'a': 1}", "optim.lr: 0.1 -> 0.2"]
    assert differences(now, now) == []


def flipped(data: bytes, place: int, bit: int = 0) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def test_a_flipped_bit_names_the_file_and_the_checkpoint_to_go_back_to(tmp_path):
    for step in (3, 6, 9):
        save_checkpoint(checkpoint_path(tmp_path, step), {"weight": torch.arange(1000.0) + step})
    path, before = checkpoint_path(tmp_path, 6), checkpoint_path(tmp_path, 3)
    data = path.read_bytes()
    path.write_bytes(flipped(data, data.index(torch.arange(6.0, 1006.0).numpy().tobytes()) + 2002))
    with pytest.raises(
        DamageFound, match=rf"{path} is damaged: it was changed or cut; go back to {before} .*resume={before}"
    ):
        load_checkpoint(path)
    best_path(tmp_path).write_bytes(data[: len(data) // 2])
    with pytest.raises(DamageFound, match=rf"best\.pt is damaged: .*; go back to {checkpoint_path(tmp_path, 9)}"):
        load_checkpoint(best_path(tmp_path))
    before.write_bytes(data[:-1])
    with pytest.raises(DamageFound, match="there is no earlier one beside it"):
        load_checkpoint(before)


def test_whatever_stands_in_the_place_of_the_newest_the_way_back_is_told(tmp_path):
    for step in (3, 6):
        save_checkpoint(checkpoint_path(tmp_path, step), {"step": step})
    path, before = checkpoint_path(tmp_path, 6), checkpoint_path(tmp_path, 3)
    for garbage in (b"", b"PK", b"garbage" * 99):
        path.write_bytes(garbage)
        with pytest.raises(DamageFound, match=rf"{path} is damaged: it was changed or cut; go back to {before}"):
            load_checkpoint(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(RequestError, match=rf"{path} is a folder, expected a file; go back to {before}"):
        load_checkpoint(path)
    path.rmdir()
    path.symlink_to("/nowhere")
    with pytest.raises(RequestError, match=rf"{path} is a link to /nowhere, which does not exist; go back to {before}"):
        load_checkpoint(path)
    with pytest.raises(RequestError, match=rf"{tmp_path} is a folder, expected a file; give a \.pt file"):
        load_checkpoint(tmp_path)


def test_no_changed_bit_of_a_checkpoint_is_used(tmp_path):
    path = checkpoint_path(tmp_path, 1)
    save_checkpoint(path, {"weight": torch.arange(8.0)})
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(flipped(data, place, place % 8))
        with pytest.raises(DamageFound, match="was changed or cut"):
            load_checkpoint(path)
    for length in (len(data) - 1, len(data) - 61, len(data) - 62, len(data) // 2, 100):
        path.write_bytes(data[:length])
        with pytest.raises(DamageFound, match="was changed or cut"):
            load_checkpoint(path)
