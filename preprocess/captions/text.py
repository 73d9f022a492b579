"""Text steps of cleaning, one span each: mojibake, Unicode form, sound marks, speaker marks, whitespace."""

from __future__ import annotations

import re
import unicodedata

from ftfy import fix_encoding

from preprocess.captions.spans import Span, rewrite, substitute

_SOUND_WORDS = re.compile(
    r"\b(?:music|applau|laugh|giggl|chuckl|cough|sneez|sigh|gasp|groan|cheer|clap|whistl|hum(?:s|ming)\b|sing(?:s|ing)\b"
    r"|bark|meow|chirp|ring(?:s|ing)\b|beep|buzz|click|clang|clatter|clink|bang|crash|thud|rumbl|whoosh|whir|sizzl|rustl"
    r"|nois|sounds?\b|silen|inaudible|indistinct|unintelligible|crosstalk|foreign|audience|crowd|static|scream|sob|cry(?:ing)?\b"
    r"|cries|yell|shout|snor|sniff|breath|exhal|inhal|footstep|knock|engine|siren|bells?\b|chime|drum|guitar|piano|song|tune"
    r"|theme|jingle|intro\b|outro\b|whisper|mumbl|blank_audio|striking)",
    re.IGNORECASE,
)
_SQUARE = re.compile(r"[\[［【][^\[\]［］【】]{0,200}[\]］】]")
_ALONE = re.compile(r"(?m)^[ \t>\-–—]*[(（][^()（）\n]*[)）][ \t.]*$")
_ROUND = re.compile(r"[(（][^()（）]{0,200}[)）]|\*[^*\n]{1,60}\*")
_NOTES = re.compile("[♩♪♫♬🎵🎶]+")
_CHEVRONS = re.compile(r">{2,}\s*(?:[A-Z][A-Z0-9 .'’#&-]{0,30}:(?=\s))?\s*")
_DASH = re.compile(r"(?m)^\s*[-–—‐]+\s*(?=[^\W\d])")
_CAPITALS = re.compile(r"(?m)^\s*[A-Z][A-Z0-9 .'’#&-]{0,30}:[ \t]+(?=[^\n]*[^\W\d_A-Z])")
_ROLES = re.compile(
    r"(?mi)^\s*(?:speaker|narrator|host|guest|interviewe[re]|announcer|reporter|moderator|presenter|instructor|teacher"
    r"|student|chef|man|woman|boy|girl|male|female|voice(?:-?over)?)(?: (?:voice|speaker|narrator))?(?: ?#?[0-9]{1,2})?"
    r"\s*:(?=\s|$)\s*"
)
# Format characters that are never seen, and joiners of nothing; ZWJ and ZWNJ stay, they shape words.
_UNSEEN = re.compile("[\u00ad\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
_GAPS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b\ud800-\udfff]")
# What the patterns need at the least: most captions are spared the rest.
_MAY_BE_SOUND = re.compile(r"[\[(*［【（♩♪♫♬🎵🎶]")
_MAY_BE_SPEAKER = re.compile(r"[:>\n]")
_DASHES = re.compile("[-–—‐]")
_SPACE = re.compile(r"\s{2,}|[^\S ]")
_READABLE = re.compile(r"[^\W_]")


def fix_mojibake(span: Span) -> Span:
    """Text decoded with the wrong table ("cafÃ©") as it was meant; of ftfy, only the repair of encodings is used."""
    return span if span.text.isascii() else rewrite(span, fix_encoding)


def normalise_unicode(span: Span) -> Span:
    """NFC; characters that are never seen go, control characters and zero-width spaces become spaces."""
    if span.text.isascii() and span.text.isprintable():
        return span
    span = substitute(span, _GAPS, lambda _: " ")
    if span.text.isascii():
        return span
    span = substitute(span, _UNSEEN, lambda _: "")
    return rewrite(span, _nfc)


def drop_sounds(span: Span) -> Span:
    """Sound marks: square brackets, a line that is one parenthesis, a parenthesis that names a sound, notes."""
    if not _MAY_BE_SOUND.search(span.text):
        return span
    span = substitute(span, _SQUARE, lambda _: " ", timed=True)
    span = substitute(span, _ALONE, lambda _: " ", timed=True)
    span = substitute(
        span, _ROUND, lambda match: " " if _SOUND_WORDS.search(match.group()) else match.group(), timed=True
    )
    return substitute(span, _NOTES, lambda _: " ")


def drop_speakers(span: Span) -> Span:
    """Speaker marks: `>>`, a dash before a line, a label in capitals before text that is not, a role with its colon."""
    if span.text[:1].isalpha() and not _MAY_BE_SPEAKER.search(span.text):
        return span
    if ">>" in span.text:
        span = substitute(span, _CHEVRONS, lambda _: " ")
    if _DASHES.search(span.text):
        span = substitute(span, _DASH, lambda _: "")
    if ":" not in span.text:
        return span
    span = substitute(span, _CAPITALS, lambda _: "")
    return substitute(span, _ROLES, lambda _: "")


def collapse_whitespace(span: Span) -> Span:
    """Any run of white space, line breaks and no-break spaces included, is one space; none at the ends."""
    text = " ".join(span.text.split())
    if text == span.text:
        return span
    if not span.marks:
        return span.with_text(text, ())
    return _trimmed(substitute(span, _SPACE, lambda _: " "))


def drop_empty(span: Span) -> Span | None:
    """A cue without a letter or digit of any script says nothing."""
    return span if _READABLE.search(span.text) else None


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _trimmed(span: Span) -> Span:
    text = span.text.strip()
    lead = len(span.text) - len(span.text.lstrip())
    marks = tuple((max(0, at - lead), time) for at, time in span.marks if at - lead < len(text))
    return span.with_text(text, marks)
