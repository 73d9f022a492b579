from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from preprocess.extract import EXTRACTORS, ExtractorSection, TimmSection


def test_a_config_key_tells_extractors_apart_by_kind():
    adapter = TypeAdapter(ExtractorSection)
    for kind, (section, _) in EXTRACTORS.items():
        assert type(adapter.validate_python({"kind": kind})) is section
    with pytest.raises(ValidationError, match="'timm', 's3d_howto100m'"):
        adapter.validate_python({"kind": "resnet"})


@pytest.mark.parametrize("change", [{"modell": "x"}, {"batch_size": 0}, {"std": (0, 1, 1)}, {"dtype": "uint8"}])
def test_unknown_keys_and_impossible_values_are_refused(change):
    with pytest.raises(ValidationError):
        TimmSection(**change)


def test_reading_a_config_loads_no_torch():
    heavy = "('torch', 'timm', 'transformers', 'torchvision')"
    script = f"import sys, preprocess.extract; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
