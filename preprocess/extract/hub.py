"""Published weights by name, where there is a network or a cache."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download

from preprocess.extract.weights import three_ways
from shared.errors import EnvironmentLacking


def fetch(repo: str, patterns: Sequence[str], model: str, by_name: str) -> Path:
    """The local snapshot of a hub repository, of the files that match `patterns`.

    Raises EnvironmentLacking, with the three ways to get weights, where it is neither cached nor to be had.
    """
    try:
        return Path(snapshot_download(repo, allow_patterns=list(patterns)))
    except (OSError, ValueError) as error:  # no network, no such repository, not a valid id
        reason = str(error).strip().partition("\n")[0]
        raise EnvironmentLacking(f"{model}: {repo} could not be fetched ({reason}). {three_ways(by_name)}") from error
