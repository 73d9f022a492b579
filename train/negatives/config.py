"""What a config may say of negatives beyond the batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from shared.config import Config
from shared.errors import RequestError

GIB = 1 << 30


def memory_bytes(rows: int, dim: int, itemsize: int) -> int:
    """Bytes of `rows` embeddings for each of both sides; what holds them has 8 more for each id."""
    return 2 * rows * dim * itemsize


class MemoryConfig(Config):
    """limit_gib: most memory, in GiB on each rank, that remembered embeddings may take; what needs more is refused."""

    limit_gib: float = Field(default=4.0, gt=0)

    def check_bytes(self, rows: int, dim: int, itemsize: int) -> None:
        """Raise RequestError unless `rows` embeddings for each of both sides fit into the limit."""
        needed = memory_bytes(rows, dim, itemsize)
        if needed > self.limit_gib * GIB:
            raise RequestError(
                f"negatives: 2 sides x {rows:,} x {dim} dimensions x {itemsize} bytes = {needed / GIB:.3g} GiB, more "
                f"than negatives.limit_gib={self.limit_gib:g}; lower {self._lower} or raise the limit"
            )

    @property
    def _lower(self) -> str:
        return "negatives.size"


class QueueConfig(MemoryConfig):
    """The last embeddings of earlier batches, as they were then.

    name: the kind. size: K, remembered videos, and as many captions; any number, whatever the batch.
    """

    name: Literal["queue"] = "queue"
    size: int = Field(ge=1)

    def described(self, videos: int) -> str:
        """For people. videos: that are trained on."""
        del videos  # one may be remembered several times
        return f"the last {self.size:,} videos and {self.size:,} captions of earlier batches"


class MocoConfig(MemoryConfig):
    """A queue of keys: embeddings by a slowly following copy of both towers (MoCo v2). Evaluated is the model itself.

    name: the kind. size: K, remembered videos, and as many captions. momentum: share of the copy's weights that each
    step keeps.
    """

    name: Literal["moco"] = "moco"
    size: int = Field(ge=1)
    momentum: float = Field(default=0.999, ge=0, lt=1)

    def described(self, videos: int) -> str:
        """For people. videos: that are trained on."""
        del videos  # one may be remembered several times
        return f"keys of the last {self.size:,} videos and {self.size:,} captions, momentum {self.momentum:g}"


class BankConfig(MemoryConfig):
    """One entry for each video and one for its captions, of which every step draws some (Wu et al. 2018).

    name: the kind. size: entries of each side that a step draws. momentum: share of the old entry in the new one.
    """

    name: Literal["bank"] = "bank"
    size: int = Field(default=4096, ge=1)
    momentum: float = Field(default=0.5, ge=0, lt=1)

    @property
    def _lower(self) -> str:
        return "model.dim, use a queue instead of a bank"

    def described(self, videos: int) -> str:
        """For people. videos: that are trained on."""
        drawn = f"{self.size:,} videos" if self.size < videos else f"all {videos:,} videos"
        return f"{drawn} and their captions, drawn from a bank of {videos:,}, as far as they were seen"


AnyNegativesConfig = QueueConfig | MocoConfig | BankConfig
NegativesConfig = Annotated[AnyNegativesConfig, Field(discriminator="name")]
