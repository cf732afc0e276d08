"""Python packages that only some sinks need."""

from __future__ import annotations

from importlib.util import find_spec

from penstock.errors import ConfigError


def require_package(module: str, *, extra: str) -> None:
    """Refuse a sink whose package is not installed, with the command that installs it."""
    if find_spec(module) is None:
        raise ConfigError(
            f"the {extra} sink needs the package {module.replace('_', '-')}",
            code="SINK_PACKAGE_MISSING",
            hint=f"pip install 'penstock[{extra}]'",
        )
