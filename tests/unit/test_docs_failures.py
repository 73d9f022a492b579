"""docs/failures.md has every reason that the code gives, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from preprocess.decode.video import Reason
from shared.edit.ids import DAMAGED, REMOVED

ROOT = Path(__file__).resolve().parents[2]


def literals(node: ast.expr) -> Iterator[str]:
    """Both values of `a if x else b`, or the one of a constant."""
    if isinstance(node, ast.IfExp):
        yield from literals(node.body)
        yield from literals(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def reasons_in(source: str) -> Iterator[str]:
    """First arguments of `Failure(...)` and `fail(...)`, and what is assigned to a variable `reason`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Failure", "fail"):
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "reason")]
            for value in given:
                yield from literals(value)
        elif isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["reason"]:
            yield from literals(node.value)


def test_each_form_of_a_reason_is_seen():
    source = 'fail("a", "")\nFailure("b", "", "")\nFailure(reason="c")\nreason = "d" if x else "e" if y else "f"\n'
    assert sorted(reasons_in(source)) == ["a", "b", "c", "d", "e", "f"]


def test_every_reason_is_explained():
    sources = [path for package in ("preprocess", "shared") for path in (ROOT / package).rglob("*.py")]
    sources = [path for path in sources if "adapters" not in path.parts]  # reasons for rows of an index, not for inputs
    in_code = {reason for path in sources for reason in reasons_in(path.read_text())}
    expected = in_code | set(get_args(Reason)) | {DAMAGED, REMOVED}
    page = (ROOT / "docs" / "failures.md").read_text()
    explained = re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)
    assert sorted(explained) == sorted(expected), "docs/failures.md: one row for each reason, each once"
