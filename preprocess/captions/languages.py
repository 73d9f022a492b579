"""Language tags of subtitle streams: containers write one language in several ways (de, ger, deu, de-AT)."""

from __future__ import annotations

import langcodes
from langcodes.tag_parser import LanguageTagError


def primary_language(tag: str) -> str | None:
    """The language of a tag (ISO 639-1, 639-2/B, 639-2/T, 639-3 or BCP 47) by one code; None for what is no tag.

    Regions and scripts do not count, and a language is that of its macrolanguage as CLDR has it: cmn is zh.
    """
    try:
        return langcodes.Language.get(langcodes.standardize_tag(tag, macro=True)).language
    except LanguageTagError:
        return None
