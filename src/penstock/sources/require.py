"""Python packages that only some sources need."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.errors import ConfigError


def require_package(module: str, *, extra: str) -> None:
    """Refuse a source whose package is not installed, with the command that installs it."""
    if find_spec(module) is None:
        raise ConfigError(
            f"the {extra} source needs the package {module.replace('_', '-')}",
            code="SOURCE_PACKAGE_MISSING",
            hint=f"pip install 'penstock[{extra}]'",
        )
