"""`python -m demo`: which commands it prints and runs, and what it does when one fails."""

from __future__ import annotations

import sys
from pathlib import Path

from demo.__main__ import DEFAULT_FOLDER, Step, run_steps, steps


def test_default_commands_are_the_ones_of_the_readme():
    shown = [step.shown.split(" -m ", 1)[1] for step in steps(DEFAULT_FOLDER, seed=0, videos=120)]
    assert shown[0] == "demo.corpus .demo/corpus --seed 0 --videos 120"
    assert shown[1] == "preprocess run configs/preprocess/demo.yaml"
    assert shown[2] == "preprocess verify .demo/store"
    assert shown[3].endswith("--standalone --nproc-per-node=2 -m train fit configs/train/demo.yaml")
    assert shown[4:] == ["train evaluate .demo/run", "train report .demo/run"]


def test_another_folder_reaches_every_step(tmp_path):
    for step in steps(tmp_path, seed=5, videos=8):
        assert any(str(tmp_path) in argument for argument in step.arguments), step.title


def test_the_first_failure_ends_the_demo_with_its_exit_code(tmp_path, monkeypatch, capfd):
    marker = tmp_path / "reached"
    for name, code in {
        "step_passes": "",
        "step_fails": "raise SystemExit(3)",
        "step_marks": f"open({str(marker)!r}, 'w')",
    }.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plan = [Step("passes", "step_passes", ()), Step("fails", "step_fails", ()), Step("never", "step_marks", ())]
    assert run_steps(plan) == 3
    assert not marker.exists()
    printed = capfd.readouterr()
    assert "[1/3] passes" in printed.out
    assert "exit code 3" in printed.err


def test_a_command_is_shown_relative_to_the_checkout():
    python = Path(sys.executable)
    shown = Step("", "preprocess", ("verify", "a b")).shown
    assert shown.endswith("-m preprocess verify 'a b'")
    assert python.name in shown
