"""One language has several tags."""

from __future__ import annotations

import pytest

from preprocess.caption_reader import CaptionsConfig
from preprocess.captions.languages import primary_language


@pytest.mark.parametrize(
    "tags",
    [
        ("de", "ger", "deu", "de-AT", "DE", "de_CH"),
        ("en", "eng", "en-GB"),
        ("zh", "chi", "zho", "cmn", "zh-Hant-TW"),
        ("fr", "fre", "fra"),
        ("cs", "cze", "ces"),
    ],
)
def test_tags_of_one_language(tags: tuple[str, ...]) -> None:
    assert {primary_language(tag) for tag in tags} == {tags[0]}


@pytest.mark.parametrize(("one", "other"), [("es", "est"), ("en", "enm"), ("ar", "arc"), ("pt", "por-"), ("de", "und")])
def test_tags_that_begin_alike_are_of_two_languages(one: str, other: str) -> None:
    assert primary_language(one) != primary_language(other)


@pytest.mark.parametrize("tag", ["", "english", "!!", "d", "1", "\udc80"])
def test_what_is_no_tag(tag: str) -> None:
    assert primary_language(tag) is None
    with pytest.raises(ValueError, match="no language tag"):
        CaptionsConfig(embedded=True, language=tag)
