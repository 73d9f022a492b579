"""The reference is what the classes say, at every depth, and a wrong path is told where it goes wrong."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from preprocess.config import PreprocessConfig
from shared.config import Config
from shared.config_reference import chosen, meaning_of, names_of_ones_own, sections
from shared.errors import RequestError
from shared.keys import as_markdown, as_text


class Step(Config):
    """How far. rate: a second. least, most: steps. most: null is no end.

    Nothing else.
    """

    rate: float = Field(default=1.0, gt=0)
    least: int = Field(default=1, ge=1)
    most: int | None = None


class Walk(Config):
    """kind: on foot."""

    kind: Literal["walk"] = "walk"
    step: Step = Step()


class Hike(Walk):
    """kind: in the | mountains. boots: whether."""

    kind: Literal["hike"] = "hike"  # type: ignore[assignment]
    step: Step = Step(rate=0.5)
    boots: bool = True


class Trip(Config):
    """A journey. legs: by name. stops: in order. mode: how."""

    legs: dict[str, Annotated[Walk | Hike, Field(discriminator="kind")]] = Field(default_factory=dict)
    stops: tuple[Step, ...] = ()
    mode: Annotated[Walk | Hike, Field(discriminator="kind")] = Hike()
    title: str


def shown(wanted: str) -> list[tuple[str, list[str]]]:
    return [(section.title, names) for section, names in chosen(Trip, wanted)]


def test_every_section_is_found_at_every_place():
    assert [section.title for section in sections(Trip)] == [
        "top level",
        "legs.NAME, kind: walk",
        "legs.NAME.step of walk",
        "legs.NAME, kind: hike",
        "legs.NAME.step of hike",
        "stops.N",
        "mode, kind: walk",
        "mode.step of walk",
        "mode, kind: hike",
        "mode.step of hike",
    ]


def test_all_shows_each_class_once():
    assert [title for title, _ in shown("")] == [
        "top level",
        "legs.NAME, kind: walk",
        "legs.NAME.step",
        "legs.NAME, kind: hike",
    ]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("legs.hike", ["legs.NAME, kind: hike", "legs.NAME.step of hike"]),
        ("legs.monday.hike", ["legs.NAME, kind: hike", "legs.NAME.step of hike"]),
        ("legs.hike.step", ["legs.NAME.step of hike"]),
        ("legs.monday.hike.step", ["legs.NAME.step of hike"]),
        ("stops", ["stops.N"]),
        ("mode.step", ["mode.step"]),
    ],
)
def test_a_path_may_leave_out_names_and_use_kinds(wanted, expected):
    assert [title for title, _ in shown(wanted)] == expected


def test_a_path_may_name_one_key():
    assert shown("legs.hike.boots") == [("legs.NAME, kind: hike", ["boots"])]
    assert shown("title") == [("top level", ["title"])]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("mod", "'mod' is no key or section of the top level; known there: legs, mode, stops, title; is `mode` meant"),
        ("stops.rat", "'rat' is no key or section of stops; known there: least, most, rate; is `rate` meant"),
        ("title.x", "'title' holds no further keys; ask for title"),
        ("mode.step.rate.x", "'rate' holds no further keys; ask for mode.step.rate"),
        ("..", "is no key or section of the top level"),
    ],
)
def test_a_wrong_path_is_told_where_it_goes_wrong(wanted, message):
    with pytest.raises(RequestError, match=message.replace(".", r"\.")):
        chosen(Trip, wanted)


def test_meanings_come_from_docstrings_and_add_up():
    assert (meaning_of(Step, "least"), meaning_of(Step, "most")) == ("steps.", "steps. null is no end.")
    assert meaning_of(Hike, "kind") == "on foot. Here: in the | mountains."
    assert meaning_of(Trip, "title") == ""
    assert [section.notes() for section in sections(Step)] == [["How far.", "Nothing else."]]


def test_defaults_are_those_of_the_place():
    (hike, step), (walk, _) = (chosen(Trip, f"legs.{kind}")[:2] for kind in ("hike", "walk"))
    rate = next(key for key in step[0].entries() if key.name == "rate")
    assert (rate.type, rate.default) == ("number above 0", "0.5")
    nested = {section[0].title: {key.name: key.default for key in section[0].entries()} for section in (hike, walk)}
    assert nested["legs.NAME, kind: hike"] == {"kind": None, "step": "{rate: 0.5}", "boots": "true"}
    assert nested["legs.NAME, kind: walk"]["step"] == "that of its keys"


def test_text_is_whole_or_wrapped():
    ((section, names),) = chosen(Trip, "stops")
    assert list(as_text(section, names, None))[:4] == [
        "  How far.",
        "  Nothing else.",
        "  rate: number above 0; default 1.0",
        "      a second.",
    ]
    narrow = list(as_text(section, names, 16))
    assert max(map(len, narrow)) <= 16
    assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(as_text(section, names, None)).split())


def test_markdown_escapes_what_would_end_a_cell():
    page = as_markdown("walk", chosen(Trip, "legs.hike"))
    assert r"| `kind` | `hike` | must be given | on foot. Here: in the \| mountains. |" in page


def test_a_word_that_is_taken_for_a_name_is_told_with_what_may_be_meant():
    words = names_of_ones_own(PreprocessConfig, "streams.tim.sampling")
    assert words == ["'tim' is taken for a name of your own; is `timm` meant?"]
    for known in ("", "streams.timm", "decode", "sets.clean", "captions.json_file"):
        assert names_of_ones_own(PreprocessConfig, known) == []
