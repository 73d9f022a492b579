"""The curves of a run for TensorBoard: `tensorboard --logdir RUN/tensorboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shared.errors import EnvironmentLacking

FOLDER = "tensorboard"


class TensorBoardFiles:
    """Numbers of metrics.jsonl under `train/...` and `validation/...`, warnings as text, by the number of steps done.

    done: steps that earlier files may have; whatever they hold of later ones TensorBoard leaves out. Nothing is
    imported before one of these is made. Raises EnvironmentLacking where tensorboard is not installed.
    """

    def __init__(self, run: Path, done: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise EnvironmentLacking(
                f"tensorboard=true, but it cannot be imported ({error}); pip install 'clipmill[train]', or set "
                "tensorboard=false"
            ) from None
        # The first step that this process writes: readers drop that one and later ones of all files before.
        self._writer = SummaryWriter(str(run / FOLDER), purge_step=done + 1)

    def write(self, record: dict[str, Any]) -> None:
        """One record of metrics.jsonl."""
        step = record["step"]
        if "warning" in record:
            self._writer.add_text(f"warning/{record['warning']['kind']}", record["warning"]["message"], step)
            return
        scalars = _scalars("validation", record["validation"]) if "validation" in record else _scalars("train", record)
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        """Everything written so far is in the files."""
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _scalars(name: str, value: Any) -> dict[str, float]:
    """Every number of nested plain values by its path: `validation/text_to_video/R@10`; lists by place."""
    if isinstance(value, dict):
        return {
            path: x
            for key, inner in value.items()
            if key != "step"
            for path, x in _scalars(f"{name}/{key}", inner).items()
        }
    if isinstance(value, list | tuple):
        return {path: x for place, inner in enumerate(value) for path, x in _scalars(f"{name}/{place}", inner).items()}
    return {name: float(value)} if isinstance(value, int | float) else {}
