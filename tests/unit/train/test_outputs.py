from __future__ import annotations

import pytest

from shared.errors import RequestError
from train.outputs import check_output, write_output


def test_what_cannot_be_a_file_is_refused_before_the_work(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "store.json").write_text("{}")
    with pytest.raises(RequestError, match="is a folder, expected the name of a file"):
        check_output(tmp_path)
    with pytest.raises(RequestError, match=r"folder .*none does not exist"):
        check_output(tmp_path / "none" / "m.json")
    with pytest.raises(
        RequestError, match=r"is inside the store .*; put what is written \(--out PATH\) somewhere else"
    ):
        check_output(tmp_path / "store" / "m.json")
    check_output(tmp_path / "m.json")
    check_output(tmp_path / "new.pt")
    (tmp_path / "best.pt").touch()
    with pytest.raises(RequestError, match=r"best\.pt is there, and its name is that of a checkpoint"):
        check_output(tmp_path / "best.pt")


def test_what_the_system_refuses_is_one_message(tmp_path):
    with pytest.raises(RequestError, match=r"/proc/x\.json cannot be written: .*; give another --out PATH"):
        write_output(tmp_path.__class__("/proc/x.json"), b"x")
    write_output(tmp_path / "m.json", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]
