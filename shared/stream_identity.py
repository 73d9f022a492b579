"""What of a stream's identity decides its rows: the rest may change and leave them as they are.

`preprocess` carries such rows over instead of extracting them again; `train` evaluates a checkpoint on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def settled(identity: Mapping[str, Any]) -> dict[str, Any]:
    """A stream's identity without its container and without what is done with damaged files (`decode.keep_partial`).

    identity: `StreamEntry.identity`, in which `rows` is [container, dtype, row shape]. An identity of another form is
    returned as it is.
    """
    found = dict(identity)
    decode, rows = identity.get("decode"), identity.get("rows")
    if isinstance(decode, Mapping):
        found["decode"] = {key: decode[key] for key in decode if key != "keep_partial"}
    if isinstance(rows, list | tuple):
        found["rows"] = list(rows[1:])
    return found
