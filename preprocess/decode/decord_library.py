"""`decord`, imported without the CUDA libraries that it would load for its GPU decoder, which is not used here.

decord2 opens every library of the `nvidia` packages with RTLD_GLOBAL. Measured: 700 MB of memory and a second more for
each decoding process, and libnvblas among them takes BLAS calls away from torch, which then crashes in a convolution
(SIGSEGV) if it is imported later. decord2 looks for the packages with `find_spec`, which a None in `sys.modules` ends.
"""

from __future__ import annotations

import sys

_nvidia = sys.modules.get("nvidia")
sys.modules["nvidia"] = None  # type: ignore[assignment]
try:
    import decord
    from decord import DECORDError
finally:
    del sys.modules["nvidia"]
    if _nvidia is not None:
        sys.modules["nvidia"] = _nvidia

__all__ = ["DECORDError", "decord"]
