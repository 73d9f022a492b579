"""The store that preprocessing writes and training reads. FORMAT.md is its specification."""

from shared.store import open_store

__all__ = ["open_store"]
