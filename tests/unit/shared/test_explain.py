"""Why a file cannot be read, in plain words and without the system's numbers, wherever people name one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from preprocess.adapters.tables import lines
from preprocess.captions.split import read_exclusions
from preprocess.captions.tokenise_words import load_word_list
from shared.config import merge_yaml
from shared.edit.ids import read_ids
from shared.errors import ClipmillError
from shared.explain import why_unreadable

READERS: dict[str, Callable[[Path], object]] = {
    "ids": read_ids,
    "exclusions": read_exclusions,
    "words": lambda path: load_word_list(str(path), 20),
    "config": lambda path: merge_yaml(path, ()),
    "index": lambda path: list(lines(path, "a table")),
}


@pytest.mark.parametrize("name", READERS)
def test_files_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").write_text("a")
    for path, why in {
        tmp_path: "it is a folder, not a file",
        tmp_path / "folder.npy": "it is a folder, not a file",
        tmp_path / "none": "does not exist",
        tmp_path / "file" / "below": "it does not exist",
    }.items():
        with pytest.raises(ClipmillError, match=why) as caught:
            READERS[name](path)
        assert "[Errno" not in str(caught.value)


def test_other_reasons() -> None:
    assert why_unreadable(PermissionError(13, "Permission denied", "/a")) == "Permission denied"
    assert why_unreadable(OSError("odd")) == "odd"
    assert why_unreadable(ValueError("no numbers")) == "no numbers"
    with pytest.raises(UnicodeDecodeError) as caught:
        b"a\xff".decode()
    assert why_unreadable(caught.value) == "it is not UTF-8 text, invalid start byte at byte 1"
