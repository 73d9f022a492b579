"""What a run says of the names of streams and sets: those that look mistyped, and sets that cannot be used any more."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from pydantic import ValidationError

from preprocess.config import PreprocessConfig
from preprocess.manifests import SetConfig
from shared.errors import DamageFound
from shared.manifest_set import ManifestSet
from shared.schema import Root
from shared.store import Store

# A letter or two of a name of usual length; `clips` and `thumbs` are far apart.
_ALIKE = 0.75


def lookalikes(root: Root, config: PreprocessConfig) -> Iterator[str]:
    """A line for each stream and set that is new to the store and has nearly the name of one that is there.

    A mistyped name is no mistake that a check could refuse: it makes another stream, perhaps for hours.
    """
    for kind, wanted, known in (
        ("stream", config.streams.keys(), root.streams.keys() | root.pending.keys()),
        ("set", config.sets.keys(), root.sets.keys()),
    ):
        yield from _alike(kind, wanted, known)


def _alike(kind: str, wanted: Collection[str], known: Collection[str]) -> Iterator[str]:
    for name in sorted(set(wanted) - set(known)):
        if near := get_close_matches(name, sorted(known), 1, _ALIKE):
            yield (
                f"{kind} {name!r} is new; is {near[0]!r} meant, which the store has? Then stop this with Ctrl-C; "
                f"`python -m preprocess remove STORE --{kind} {name}` takes out what was made of it"
            )


def how_to_make_again(store: Store, name: str) -> str:
    """The command that makes a set again with its settings, whatever the config at hand says of sets."""
    try:
        info = ManifestSet(store.path, store.root.sets[name].path).info
    except DamageFound as damage:
        return f"`python -m preprocess manifests CONFIG` with its settings, which cannot be read: {damage}"
    given = f"sets.{name}={json.dumps(_given(info.config), ensure_ascii=False)}"
    return f"python -m preprocess manifests CONFIG {shlex.quote(given)}"


def _given(config: dict[str, object]) -> dict[str, object]:
    """What of a set's settings is not the default; all of them where this release takes them no more."""
    try:
        return SetConfig.model_validate(config).model_dump(mode="json", exclude_defaults=True)
    except ValidationError:
        return config
