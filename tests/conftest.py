"""Fixtures for everyone: the folder of test material, and small real media files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

MATERIAL = Path(__file__).resolve().parents[2] / "shared"


def material(*parts: str) -> Path:
    """A path in the folder of test material beside the checkout; absent, it skips, or fails where CI requires it."""
    path = MATERIAL.joinpath(*parts)
    if not path.exists():
        message = f"test material {'/'.join(parts)} is not beside this checkout"
        if os.environ.get("CLIPMILL_REQUIRE_MATERIAL"):
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def material_path():
    """`material_path("cases", "videos", "vfr.mp4")` -> Path, or a visible skip."""
    return material
