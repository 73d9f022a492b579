"""How wide a layer may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

# A matrix of two such sides takes 16 GiB; a larger number is a slip of the finger, not a model.
MAX_WIDTH = 65_536
Width = Annotated[int, Field(le=MAX_WIDTH)]
