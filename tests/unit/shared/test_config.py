"""YAML and overrides into typed configuration: every mistake is one message that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from shared.config import Config, load_config
from shared.errors import RequestError
from shared.schema import Name


class Optimiser(Config):
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)


class Job(Config):
    store: Path
    name: str = "plain"
    optimiser: Optimiser = Optimiser()


@pytest.fixture
def config(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return write


def test_reads_yaml_and_defaults(config):
    job = load_config(config("store: out\noptimiser: {lr: 3e-4}\n"), Job)
    assert job == Job(store=Path("out"), optimiser=Optimiser(lr=3e-4))


def test_overrides_win_and_reach_into_sections(config):
    job = load_config(config("store: out\noptimiser: {lr: 1}\n"), Job, ["optimiser.lr=2e-4", "name=a=b", "store=x"])
    assert (job.optimiser.lr, job.name, job.store) == (2e-4, "a=b", Path("x"))


def test_is_frozen(config):
    job = load_config(config("store: out\n"), Job)
    with pytest.raises(ValidationError, match="frozen"):
        job.name = "other"


def test_unknown_key_is_named_with_the_known_ones(config):
    with pytest.raises(RequestError, match=r"optimiser\.learning: unknown key; known here: betas, lr"):
        load_config(config("store: out\noptimiser: {learning: 1}\n"), Job)


def test_unknown_key_in_an_override_is_refused(config):
    with pytest.raises(RequestError, match="stroe: unknown key; known here: name, optimiser, store"):
        load_config(config("store: out\n"), Job, ["stroe=x"])


def test_every_mistake_is_listed(config):
    with pytest.raises(RequestError) as caught:
        load_config(config("optimiser: {lr: fast}\n"), Job)
    assert "store: missing, and it has no default" in str(caught.value)
    assert "optimiser.lr:" in str(caught.value)
    assert "'fast'" in str(caught.value)


@pytest.mark.parametrize("item", ["optimiser.lr", "=3", "--lr"])
def test_an_override_must_be_key_and_value(config, item):
    with pytest.raises(RequestError, match="is not of the form key=value, as in store="):
        load_config(config("store: out\n"), Job, [item])


@pytest.mark.parametrize("text", ["store: [1, 2\n", "store: a\nstore: b\n", "a: b: c\n", "store: ${nowhere.at.all}\n"])
def test_bad_yaml_is_a_request_error(config, text):
    with pytest.raises(RequestError, match=r"job\.yaml is not valid"):
        load_config(config(text), Job)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("- 1\n- 2\n", "a list"),
        ("just text\n", "text that begins with 'just text'"),
        ("video,path\n1,2\n", "text that begins with 'video,path 1,2'"),
    ],
)
def test_a_file_without_keys_is_refused(config, text, held):
    with pytest.raises(RequestError, match=rf"job\.yaml holds {held}, expected YAML with `key: value` pairs"):
        load_config(config(text), Job)


def test_a_key_or_a_section_can_be_taken_out(config):
    path = config("store: out\nname: other\noptimiser: {lr: 1, rate: 2}\n")
    assert load_config(path, Job, ["~optimiser.rate", "~name"]) == Job(store=Path("out"), optimiser=Optimiser(lr=1))
    assert load_config(path, Job, ["optimiser.lr=3", "~optimiser"]).optimiser == Optimiser(lr=3)


@pytest.mark.parametrize("key", ["nam", "optimiser.rate", "store.x", "nowhere.at.all", "name.", ""])
def test_a_key_that_is_not_there_cannot_be_taken_out(config, key):
    with pytest.raises(RequestError, match=r"takes a key out that config|is not of the form"):
        load_config(config("store: out\nname: other\noptimiser: {lr: 1}\n"), Job, [f"~{key}"])


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"store: \xff\xfe\n")
    with pytest.raises(RequestError, match=r"job\.yaml"):
        load_config(path, Job)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(RequestError, match="does not exist"):
        load_config(tmp_path / "none.yaml", Job)
    with pytest.raises(RequestError, match="cannot be read"):
        load_config(tmp_path, Job)


def test_references_to_environment_and_other_keys(config, monkeypatch):
    monkeypatch.setenv("CLIPMILL_TEST_ROOT", "/data")
    job = load_config(config("name: one\nstore: ${oc.env:CLIPMILL_TEST_ROOT}/${name}\n"), Job)
    assert job.store == Path("/data/one")


def test_an_unset_environment_variable_is_named(config, monkeypatch):
    monkeypatch.delenv("CLIPMILL_TEST_ROOT", raising=False)
    with pytest.raises(RequestError, match="CLIPMILL_TEST_ROOT"):
        load_config(config("store: ${oc.env:CLIPMILL_TEST_ROOT}\n"), Job)


class Soft(Config):
    kind: Literal["soft"] = "soft"
    size: Annotated[int, Field(ge=1)] | tuple[int, int] = 3


class Hard(Config):
    kind: Literal["hard"] = "hard"
    edges: tuple[Optimiser, ...] = ()


class Deep(Config):
    also: tuple[Name, ...] | None = None
    parts: dict[Name, Annotated[Soft | Hard, Field(discriminator="kind")]] = Field(default_factory=dict)
    other: Optimiser | None = None


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("parts.a={kind: soft, sise: 1}", "parts.a.sise: unknown key; known here: kind, size; is `size` meant?"),
        ("parts.a={kind: soft, x: 1}", "parts.a.x: unknown key; known here: kind, size"),
        ("parts.a={kind: hard, edges: [{rl: 1}]}", "parts.a.edges.0.rl: unknown key; known here: betas, lr"),
        (
            "parts.a={kind: soft, edges: []}",
            "parts.a.edges: belongs to `hard`, and `soft` is chosen here; take it out (on",
        ),
        ("also=fast", "also: expected [name (letters, digits, _ . -, not beginning with . or -, at most 100), ...] or"),
        ("other.learning=1", "other.learning: unknown key; known here: betas, lr"),
        ("parts.a={kind: soff}", "parts.a.kind: expected `hard` or `soft`, got 'soff'; is `soft` meant?"),
        ("parts.a={size: 1}", "parts.a.kind: missing, and it has no default; expected `hard` or `soft`"),
        ("parts.a=5", "parts.a: expected a section of `key: value` pairs, got 5"),
        ("parts=5", "parts: expected {NAME: section}, got 5"),
        ("parts={a b: {kind: soft}}", "parts: 'a b' is no name here; expected name (letters, digits, _ . -, "),
        ("parts.a={kind: soft, size: big}", "parts.a.size: expected integer of at least 1 or [integer, integer], got"),
        ("other.betas=[1]", "other.betas: expected [number, number], got [1]"),
        ("other.betas=[1, x]", "other.betas.1: expected number, got 'x'"),
        ("other.lr=nan", "other.lr: expected a finite number, got 'nan'"),
        ("other.lr=null", "other.lr: expected number, got null"),
        ("other.lr=true", "other.lr: expected number, got true"),
        ("other.betas=[true, 1]", "other.betas: expected [number, number], got [True, 1]"),
        ("parts.a={kind: soft, size: true}", "parts.a.size: expected integer of at least 1 or [integer, integer], got"),
    ],
)
def test_mistakes_are_told_in_plain_words_at_every_depth(config, override, line):
    with pytest.raises(RequestError) as caught:
        load_config(config("{}\n"), Deep, [override])
    told = str(caught.value).splitlines()[1:]
    assert len(told) == 1
    assert told[0].startswith(f"  {line}")


def test_one_text_where_several_go_is_told_how_to_write_it(config):
    with pytest.raises(RequestError, match=r"got 'fast'; is `\[fast\]` meant\?"):
        load_config(config("also: fast\n"), Deep)


@pytest.mark.parametrize("text", ["off", "1", "1e3", "true"])
@pytest.mark.parametrize("key", ["store", "name"])
def test_a_path_or_text_that_yaml_reads_as_something_else(config, key, text):
    with pytest.raises(RequestError, match=rf"{key}: expected .*, got .*; YAML reads it so: .*\"{key}='...'\"$"):
        load_config(config("store: out\n"), Job, [f"{key}={text}"])
    assert str(getattr(load_config(config("store: out\n"), Job, [f"{key}='{text}'"]), key)) == text


class Either(Config):
    looks: Literal["auto"] | bool = "auto"
    plain: bool | None = None


def test_true_and_false_where_they_belong(config):
    assert load_config(config("looks: false\nplain: true\n"), Either) == Either(looks=False, plain=True)
