"""The dictionary of losses and its configuration."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from train.losses import LOSSES, InfoNceConfig, LossConfig, MilNceConfig, build_loss


def test_every_loss_has_a_config_of_its_name_and_builds(bags):
    for name in LOSSES:
        config = TypeAdapter(LossConfig).validate_python({"name": name})
        video, text, mask, ids = bags()
        assert build_loss(config)(video, text, mask, ids, temperature=1.0).isfinite()


def test_options_reach_the_loss(bags):
    video, text, mask, ids = bags()
    once, twice = (
        build_loss(MilNceConfig(positives=p))(video, text, mask, ids, temperature=1.0) for p in ("once", "twice")
    )
    assert twice > once


def test_an_option_of_another_loss_is_refused():
    with pytest.raises(ValidationError, match="positives"):
        InfoNceConfig.model_validate({"positives": "twice"})
