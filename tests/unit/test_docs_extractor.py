"""The example of docs/own-extractor.md, applied to a copy of the packages and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from shared.store import open_store

ROOT = Path(__file__).resolve().parents[2]


def example() -> list[str]:
    """The page's blocks of code: the file, the section, the line, the config."""
    page = (ROOT / "docs" / "own-extractor.md").read_text()
    return re.findall(r"```(?:python|yaml)\n(.*?)```", page, re.DOTALL)


def apply_example(copy: Path, file: str, section: str, line: str) -> None:
    """What the page tells people to do, on a copy of the packages."""
    for package in ("preprocess", "shared"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    folder = copy / "preprocess" / "extract"
    (folder / "colours.py").write_text(file)
    sections = folder / "sections.py"
    sections.write_text(f"{sections.read_text()}\n\n{section}")
    text = (folder / "__init__.py").read_text()
    text, imports = re.subn(r"(sections import \(\n)", r"\1    ColoursSection,\n", text)
    text, lines = re.subn(r"(?m)^(EXTRACTORS: .*\n)", lambda found: found[0] + line, text)
    assert (imports, lines) == (1, 1), "preprocess/extract/__init__.py is not as the page says"
    (folder / "__init__.py").write_text(text)


def command(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "preprocess", *words],
        cwd=copy, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_example_is_as_the_house_writes(tmp_path: Path) -> None:
    """Whoever follows the page passes `make check`."""
    file, section, line, _ = example()
    apply_example(tmp_path, file, section, line)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    made = ["preprocess/extract/colours.py", "preprocess/extract/sections.py"]
    for check in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "--no-cache", *made],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_makes_rows(tmp_path: Path) -> None:
    file, section, line, config = example()
    apply_example(tmp_path, file, section, line)
    picture_HW3 = np.full((64, 96, 3), 255, np.uint8)
    picture_HW3[:32, 48:] = (255, 0, 51)
    Image.fromarray(picture_HW3).save(tmp_path / "picture.png")
    (tmp_path / "videos.csv").write_text("video_id,video_path\npicture,picture.png\n")
    (tmp_path / "config.yaml").write_text(config)

    ran = command(tmp_path, "run", "config.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = open_store(tmp_path / "store").stream("colours").read(0)
    np.testing.assert_allclose(row.reshape(4, 3), [(1, 1, 1), (1, 0, 0.2), (1, 1, 1), (1, 1, 1)], atol=1e-6)

    keys = command(tmp_path, "keys", "streams.colours")
    assert "grid: integer above 0; default 4\n      cells on a side." in keys.stdout
