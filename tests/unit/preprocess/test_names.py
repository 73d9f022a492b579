"""Names that look mistyped; sets that cannot be used any more."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from preprocess.config import PreprocessConfig
from preprocess.manifests import SetConfig
from preprocess.names import how_to_make_again, lookalikes
from shared.config import load_config
from shared.manifest_writer import ManifestSetWriter
from shared.store import open_store, open_writer, outdated_sets


def config(streams: list[str], sets: list[str]) -> PreprocessConfig:
    return PreprocessConfig.model_validate(
        {
            "inputs": "x.csv",
            "store": "x",
            "streams": {name: {"kind": "timm"} for name in streams},
            "sets": {name: {} for name in sets},
        }
    )


@pytest.mark.parametrize("name", ["defalt", "defualt", "Default", "default1", "defaults"])
def test_a_new_name_that_is_nearly_an_old_one(small_store, tmp_path: Path, name: str) -> None:  # type: ignore[no-untyped-def]
    root = open_store(small_store(tmp_path / "store", splits={"train": 1})).root
    (line,) = lookalikes(root, config(["default", name], ["default"]))
    assert line.startswith(f"stream {name!r} is new; is 'default' meant, which the store has?")
    assert f"remove STORE --stream {name}" in line
    (line,) = lookalikes(root, config(["default"], ["default", name]))
    assert f"remove STORE --set {name}" in line


def test_other_names_are_nobodys_business(small_store, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    root = open_store(small_store(tmp_path / "store", splits={"train": 1})).root
    assert list(lookalikes(root, config(["default", "clips", "s3d"], ["default", "eight_seconds"]))) == []


def test_the_command_makes_an_outdated_set_as_it_was(small_store, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = small_store(tmp_path / "store", splits={"train": 1})
    section = SetConfig.model_validate({"windows": {"min_seconds": 7.5}, "split": {"exclude": "it's, {a} list"}})
    with open_writer(path) as writer:
        table = ManifestSetWriter(writer.scratch / "set")
        writer.commit_set(*table.finish(
            name="kurz", stream="default", stream_fingerprint="ee", config=section.model_dump(mode="json"),
            tokenizer={"pad_id": 0}, report={},
        ))  # fmt: skip
    store = open_store(path)
    assert outdated_sets(store.root) == ["kurz"]
    *command, given = shlex.split(how_to_make_again(store, "kurz"))
    assert command == ["python", "-m", "preprocess", "manifests", "CONFIG"]
    (tmp_path / "config.yaml").write_text("inputs: x.csv\nstore: x\n")
    assert load_config(tmp_path / "config.yaml", PreprocessConfig, [given]).sets == {"kurz": section}
    (path / store.root.sets["kurz"].path / "manifest.json").write_text("{")
    assert "with its settings, which cannot be read: " in how_to_make_again(store, "kurz")
