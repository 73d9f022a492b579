"""What a key is for: two draws of a run never share one."""

from __future__ import annotations

VIDEOS, WINDOW, BATCHES, CAPTIONS, SOURCE, TURN = range(6)
