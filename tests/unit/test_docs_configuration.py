"""docs/configuration.md is current, and no key of a config is without a meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from preprocess.config import PreprocessConfig
from preprocess.extract import EXTRACTORS
from shared.config_reference import chosen, meaning_of, sections
from shared.keys import as_markdown
from train.config import FitConfig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
MAKE = "(python -m preprocess keys --markdown; python -m train keys --markdown) > docs/configuration.md"
PROGRAMS = {"preprocess": PreprocessConfig, "train": FitConfig}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_key_has_a_meaning(program):
    models = {section.model for section in sections(PROGRAMS[program])}
    silent = [f"{model.__name__}.{key}" for model in models for key in model.model_fields if not meaning_of(model, key)]
    assert not sorted(silent), "say what they mean in the docstring of the class, as in `key: what it means.`"


def test_the_page_is_current():
    expected = "".join(as_markdown(program, chosen(model, "")) for program, model in PROGRAMS.items())
    assert PAGE.read_text() == expected, f"make it again: {MAKE}"


def test_every_extractor_is_shown():
    tags = {section.tag[1] for section, _ in chosen(PreprocessConfig, "streams") if section.tag}
    assert tags == set(EXTRACTORS)
