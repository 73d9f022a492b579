"""Rows of Parquet files, a batch at a time; pyarrow is imported only here, when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from preprocess.adapters.items import Row
from shared.errors import EnvironmentLacking, InputFileError

_BATCH_ROWS = 16_384


def parquet_columns(path: Path, form: str) -> list[str]:
    """Names of the columns. Raises InputFileError, and EnvironmentLacking without pyarrow."""
    return list(_open(path, form).schema_arrow.names)


def parquet_rows(path: Path, columns: Sequence[str], form: str) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Rows with the columns named, in bounded memory. Text that is not UTF-8 comes with lone surrogates.

    form: what was expected, for messages. Raises as `parquet_columns`.
    """
    file = _open(path, form)
    number = 0
    with _arrow_faults(path, form):
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=list(columns)):
            values = [_values(batch.column(name)) for name in columns]
            for row in zip(*values, strict=True):
                yield Row(path.name, f"row {number}"), dict(zip(columns, row, strict=True))
                number += 1


def _values(array: Any) -> list[Any]:
    import pyarrow

    if not (pyarrow.types.is_string(array.type) or pyarrow.types.is_large_string(array.type)):
        return array.to_pylist()  # type: ignore[no-any-return]
    raw = array.cast(pyarrow.large_binary()).to_pylist()
    return [value if value is None else value.decode("utf-8", "surrogateescape") for value in raw]


def _open(path: Path, form: str) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise EnvironmentLacking(f"{path} needs pyarrow to be read: pip install 'clipmill[parquet]'") from None
    with _arrow_faults(path, form):
        return parquet.ParquetFile(path)


@contextmanager
def _arrow_faults(path: Path, form: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputFileError(f"index {path} is no whole Parquet file: {reason}; expected {form}") from None
