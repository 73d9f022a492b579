from __future__ import annotations

import json

from train.runlog import RunLog, read_records


def test_lines_after_the_checkpoint_and_torn_ones_go(tmp_path):
    log = RunLog(tmp_path, active=True)
    for step in range(1, 6):
        log.write({"step": step, "loss": 1 / step})
    log.write({"step": 3, "validation": {}})
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 2, "lo')
    log.cut_after(3)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 3]
    log.write({"step": 4})
    assert read_records(path)[-1] == {"step": 4}


def test_other_ranks_say_nothing(tmp_path, capsys):
    log = RunLog(tmp_path, active=False)
    log.write({"step": 1})
    log.say("hello")
    log.cut_after(0)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().out == ""
