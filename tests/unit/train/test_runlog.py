from __future__ import annotations

import json

import pytest

from shared.errors import DamageFound, StoppedEarly
from train.runlog import RunLog, loss_words, read_records


def test_lines_after_the_checkpoint_and_torn_ones_go(tmp_path):
    log = RunLog(tmp_path, active=True)
    for step in range(1, 6):
        log.write({"step": step, "loss": 1 / step})
    log.write({"step": 3, "validation": {}})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 2, "lo')
    log.begin(3)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 3]
    log.write({"step": 4})
    assert read_records(path)[-1] == {"step": 4}


def test_other_ranks_say_nothing(tmp_path, capsys):
    log = RunLog(tmp_path, active=False)
    log.write({"step": 1})
    log.say("hello")
    log.begin(0)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("line", [b"\xff\x00garbage", b"{", b"[1]", b"{}", b'{"step": "x"}', b"", b"[" * 100_000])
def test_a_line_that_is_no_record_is_damage_with_its_number(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    for read in (lambda: read_records(path), lambda: RunLog(tmp_path, active=True).begin(1)):
        with pytest.raises(DamageFound, match=r"metrics\.jsonl line 2 is not a record of `train fit`: .* move it away"):
            read()


def test_a_separator_that_is_no_line_end_stays_in_its_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "note": "a\u2028b"}\n')
    assert read_records(path) == [{"step": 1, "note": "a\u2028b"}]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (2.34567, "2.3457"),
        (0.001, "0.0010"),
        (0.00012345, "0.000123"),
        (1.5e-7, "1.5e-07"),
        (0.0, "0.0000"),
        (-3e-5, "-3e-05"),
    ],
)
def test_a_small_loss_still_shows_digits(loss, words):
    assert loss_words(loss) == words


def test_a_full_disk_stops_the_run_as_that(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StoppedEarly, match=r"no space left while writing .*metrics\.jsonl"):
        RunLog(tmp_path, active=True).write({"step": 1})
