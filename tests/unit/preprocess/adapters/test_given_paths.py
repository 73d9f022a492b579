"""Paths given to `adapt` that are missing, or something else than they should be: told before anything is walked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from preprocess.adapters import ADAPTERS
from preprocess.adapters import adapt as adapt_module
from preprocess.adapters.adapt import adapt
from shared.errors import InputFileError, RequestError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder and a file; nothing may be walked."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.csv").write_text("a,b\n")

    def walked(*_: object) -> Iterator[None]:
        raise AssertionError("the media were looked for")

    monkeypatch.setattr(adapt_module, "MediaIndex", walked)
    return tmp_path


@pytest.mark.parametrize("dataset", ADAPTERS)
def test_an_index_that_is_not_there(dataset: str, places: Path) -> None:
    for path in (places / "none", places / "none" / "deeper", places / "file.csv" / "below"):
        with pytest.raises(InputFileError, match=rf"(index|folder) {path} does not exist; expected"):
            adapt(dataset, [path])
    with pytest.raises(InputFileError, match=r"cannot be read: File name too long"):
        adapt(dataset, [places / ("n" * 300)])


@pytest.mark.parametrize("dataset", ADAPTERS)
def test_an_index_of_the_other_kind(dataset: str, places: Path) -> None:
    takes = ADAPTERS[dataset].takes
    if "folder" not in takes:
        with pytest.raises(InputFileError, match=r"folder is a folder, not a file; expected"):
            adapt(dataset, [places / "folder"])
    if "file" not in takes:
        with pytest.raises(InputFileError, match=r"^folder .*file.csv is a file, not a folder; expected"):
            adapt(dataset, [places / "file.csv"])


@pytest.mark.parametrize("dataset", [name for name in ADAPTERS if "file" in ADAPTERS[name].takes])
def test_media_and_captions(dataset: str, places: Path) -> None:
    with pytest.raises(InputFileError, match=r"folder of media .*none does not exist"):
        adapt(dataset, [places / "file.csv"], places / "none")
    with pytest.raises(InputFileError, match=r"folder of media .*file.csv is a file, not a folder"):
        adapt(dataset, [places / "file.csv"], places / "file.csv")
    if "captions" in ADAPTERS[dataset].options:
        with pytest.raises(InputFileError, match=r"captions .*none does not exist"):
            adapt(dataset, [places / "file.csv"], places, captions=places / "none")


def test_the_manifest_may_have_any_name_that_is_no_file_yet(places: Path) -> None:
    for name in (f"{'n' * 300}.csv", "file.csv/below.csv"):
        with pytest.raises((RequestError, AssertionError), match=r"cannot be written|looked for"):
            adapt("folder", [places / "folder"], manifest=places / name)
