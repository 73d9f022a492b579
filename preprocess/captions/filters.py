"""Captions that are left out on request, after cleaning and cutting: too few words, or another language.

Those that do not describe what is shown are found by `similarity.py`.

The language is that of the whole track: single captions are too short to tell. It is found by py3langid (langid.py,
Lui and Baldwin, ACL 2012), whose model comes with the package.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from pydantic import Field

from preprocess.captions.encoders import SimilarityConfig
from preprocess.captions.types import Caption
from shared.config import Config
from shared.errors import RequestError

_WORD = re.compile(r"[\w']+")
_MOST_CHARACTERS = 20_000  # of a track: more of it changes no answer


class FilterConfig(Config):
    """min_words: captions of fewer words, as HowTo100M counts them (`[\\w']+`), are left out.

    languages: ISO 639-1 codes; the captions of a track in another language are left out. None named: all are kept.
    similarity: captions that resemble none of the rows they overlap are left out; null: all are kept.
    """

    min_words: int = Field(default=0, ge=0)
    languages: tuple[str, ...] = ()
    similarity: SimilarityConfig | None = None


@dataclass
class Dropped:
    """counts: captions left out by each filter that is on; examples: [text, why] of a few."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def note(self, name: str, captions: Sequence[Caption], why: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + len(captions)
        self.examples.setdefault(name, []).extend((caption.text, why) for caption in captions[:3])


class CaptionFilter:
    """identity: what decides beside the config, for the fingerprint of a set."""

    def __init__(self, config: FilterConfig) -> None:
        """Raises RequestError for a language that the model does not know."""
        self._config = config
        self._identifier: Any = None
        self.identity: str | None = None
        if config.languages:
            from py3langid.langid import MODEL_FILE, LanguageIdentifier  # half a second, only where it is asked for

            self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
            self.identity = f"py3langid {version('py3langid')}"
            unknown = sorted(set(config.languages) - set(self._identifier.labels))
            if unknown:
                known = " ".join(sorted(self._identifier.labels))
                raise RequestError(f"filters.languages: {unknown[0]!r} is not one of the languages told apart: {known}")

    def apply(self, captions: tuple[Caption, ...]) -> tuple[tuple[Caption, ...], Dropped]:
        """The captions that stay, in their order, and the account of the others."""
        config, dropped = self._config, Dropped()
        if config.languages:
            captions = self._of_languages(captions, dropped)
        if config.min_words:
            kept = tuple(caption for caption in captions if len(_WORD.findall(caption.text)) >= config.min_words)
            short = [caption for caption in captions if len(_WORD.findall(caption.text)) < config.min_words]
            dropped.note("min_words", short, f"fewer than {config.min_words} words")
            captions = kept
        return captions, dropped

    def _of_languages(self, captions: tuple[Caption, ...], dropped: Dropped) -> tuple[Caption, ...]:
        text = " ".join(caption.text for caption in captions)[:_MOST_CHARACTERS]
        found = str(self._identifier.classify(text)[0]) if text else ""
        other = () if not text or found in self._config.languages else captions
        dropped.note("languages", other, found)
        return () if other else captions
