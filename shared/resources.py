"""Paths in configs: plain, or `package:NAME/sub/path` for a file that an installed package carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from shared.errors import EnvironmentLacking, RequestError

_PREFIX = "package:"


def resolve_resource(value: str) -> Path:
    """The path that `value` names; a `package:` path is looked up without importing the package.

    Raises EnvironmentLacking when the package is not installed, RequestError when the path would leave it.
    A plain path comes back as it is, existing or not: the caller knows what it needs it for.
    """
    if not value.startswith(_PREFIX):
        return Path(value).expanduser()
    package, _, rest = value.removeprefix(_PREFIX).partition("/")
    if not package.isidentifier():
        raise RequestError(f"{value!r} names no package; expected {_PREFIX}NAME/path/inside/it")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pip_name = package.replace("_", "-")
        raise EnvironmentLacking(
            f"{value}: package {package!r} is not installed; check the name, and if it is right, "
            f"`pip install {pip_name}`"
        )
    root = Path(next(iter(spec.submodule_search_locations))).resolve()
    path = (root / rest).resolve()
    if not path.is_relative_to(root):
        raise RequestError(f"{value} leaves its package; expected a path inside {package}")
    if not path.exists():
        raise EnvironmentLacking(
            f"{value}: package {package!r} holds no {rest!r}; another version of it may be installed"
        )
    return path
