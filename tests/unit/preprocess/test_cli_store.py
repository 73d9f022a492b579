"""Commands on stores: what they say, and their exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from preprocess.cli import app
from shared.errors import ClipmillError
from shared.store import open_store, open_writer

COMMANDS = ("remove", "restore", "subset", "merge", "compact", "repair", "inspect")


@pytest.fixture
def store(small_store, tmp_path: Path) -> Path:
    return small_store(tmp_path / "store", splits={"train": 3, "val": 2})


def said(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, ClipmillError):
        return done.exception.exit_code, done.output + str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    code, text = said(command, "--help")
    assert code == 0
    assert f"Example: python -m preprocess {command} /data/" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_no_store_stays_what_it_is(command, tmp_path):
    nothing, ids = tmp_path / "nothing", tmp_path / "ids.txt"
    ids.write_text("a\n")
    arguments = {
        "remove": [nothing, "a"], "restore": [nothing, "a"], "subset": [nothing, tmp_path / "new", "--ids", ids],
        "merge": [tmp_path / "new", nothing, tmp_path / "other"],
    }.get(command, [nothing])  # fmt: skip
    code, text = said(command, *arguments)
    assert code == 2
    assert not nothing.exists()
    assert "is no store" in text


def test_remove_and_restore(store, tmp_path):
    assert said("remove", store, "train000", "nobody") == (
        2,
        f"{store} has no video 'nobody': nothing was changed; `preprocess inspect {store}` lists those it has",
    )
    assert said("remove", store)[0] == 2
    code, text = said("remove", store, "train000")
    assert (code, "1 video removed" in text, "set default: edited" in text) == (0, True, True)
    assert said("remove", store, "train000") == (0, "nothing to do: removed before\n")
    assert said("remove", store, "--", "-x")[1].startswith(f"{store} has no video '-x'")
    assert said("restore", store, "train000") == (0, "1 video may come in again with the next run\n")
    assert said("restore", store, "train000")[0] == 2


def test_remove_streams_and_sets(store):
    assert said("remove", store, "train000", "--stream", "default")[0] == 2
    code, text = said("remove", store, "--stream", "default")
    assert (code, "take it out as well: --set default" in text) == (2, True)
    assert said("remove", store, "--stream", "default", "--set", "default") == (
        0,
        f"stream default, set default removed from {store}\n",
    )
    assert open_store(store).root.streams == {}
    assert said("verify", store)[0] == 0


def test_failures_of_a_store_with_an_outdated_set(store):
    with open_writer(store) as writer:
        entry = writer.root.sets["default"].model_copy(update={"stream_fingerprint": "ee"})
        writer.commit([], sets={"default": entry})
    code, text = said("failures", store)
    assert (code, "set default is out of date, its stream has changed" in text) == (0, True)


def test_subset_wants_one_of_two_ways(store, tmp_path):
    for options in ([], ["--split", "val"], ["--set", "default"], ["--ids", "x", "--split", "val", "--set", "default"]):
        code, text = said("subset", store, tmp_path / "new", *options)
        assert (code, "give either --ids FILE, or --set NAME and --split NAME" in text) == (2, True)
    assert said("subset", store, tmp_path / "new", "--set", "default", "--split", "val") == (
        0,
        f"{tmp_path / 'new'}: 2 videos of {store}\n",
    )
    assert open_store(tmp_path / "new").manifest_set("default").video_ids == ["val000", "val001"]


def test_repair_says_what_it_did(store):
    assert said("repair", store) == (0, f"{store} was whole\n")
    (index,) = (store / "features" / "default").glob("*.json")
    index.unlink()
    next((store / "manifests").glob("*/tokens.npy")).unlink()
    code, text = said("repair", store)
    assert code == 0
    assert f"features/default/{index.stem}: dropped with its index, which alone knew its 5 videos" in text
    assert "set default: 5 videos taken out, whose rows are lost; `python -m preprocess manifests CONFIG`" in text
    assert "/tokens.npy" in text
    assert text.endswith(f"{store} is whole\n")
    assert said("verify", store)[0] == 0
    (store / "store.json").write_text("{}")
    code, text = said("repair", store)
    assert (code, "cannot be repaired" in text) == (1, True)
