from __future__ import annotations

from pathlib import Path

import pytest

from shared.config import load_config
from shared.errors import DamageFound, RequestError
from train.compare_runs import Cost, open_entries, read_cost
from train.config import FitConfig
from train.measured_fit import Part

CONFIGS = Path(__file__).resolve().parents[3] / "configs/train/compare"


def part(first, last, seconds, memory=None):
    return Part(first=first, last=last, seconds=seconds, peak_memory=memory, peak_cuda=None)


def test_time_is_told_only_of_what_was_measured_in_whole():
    parts = (part(0, 4, 1.0, 10), part(4, 4, 9.0, 30), part(4, 6, 2.0, 20))
    assert Cost(parts=parts).seconds(6) == 3.0
    assert Cost(parts=parts).peak("peak_memory") == 30
    assert Cost(parts=parts).peak("peak_cuda") is None
    assert Cost(parts=parts).seconds(7) is None
    assert Cost(parts=parts[2:]).seconds(6) is None
    assert Cost(parts=(parts[0], part(5, 6, 1.0))).seconds(6) is None
    assert Cost().seconds(6) is None


def test_a_changed_cost_file_is_damage_and_none_is_none(tmp_path):
    assert read_cost(tmp_path / "none") == Cost()
    (tmp_path / "cost.json").write_text('{"parts": [{"first": "x"}]}')
    with pytest.raises(DamageFound, match=r"cost\.json is not what `train compare` wrote: parts\.0\.first"):
        read_cost(tmp_path)
    (tmp_path / "cost.json").unlink()
    (tmp_path / "cost.json").mkdir()
    with pytest.raises(DamageFound, match="it is a folder"):
        read_cost(tmp_path)


def test_runs_may_be_moved_and_folders_are_read_by_name(tmp_path):
    entries = open_entries([str(CONFIGS), "seed=7"], tmp_path)
    assert [entry.name for entry in entries] == sorted(path.stem for path in CONFIGS.glob("*.yaml"))
    assert {entry.config.seed for entry in entries} == {7}
    assert entries[0].config.run == tmp_path / "moco-fixed"
    with pytest.raises(RequestError, match=r"holds no \.yaml or \.yml file"):
        open_entries([str(tmp_path)], None)


def test_shipped_configs_differ_in_negatives_and_temperature_alone():
    loaded = {path.stem: load_config(path, FitConfig) for path in CONFIGS.glob("*.yaml")}
    assert len(loaded) == 9
    apart = {"run": True, "negatives": True, "model": {"temperature"}}
    assert (
        len(
            {config.model_copy(update={"negatives": None}).model_dump_json(exclude=apart) for config in loaded.values()}
        )
        == 1
    )
    for name, config in loaded.items():
        negatives, temperature = name.split("-")
        assert config.run.name == name
        assert (config.negatives.name if config.negatives else "plain") == negatives
        found = config.model.temperature
        kind = "learned" if found.learned else "fixed" if found.schedule == "constant" else "scheduled"
        assert kind == temperature
