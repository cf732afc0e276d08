"""What options of sinks and sources have in common: those that cannot work are refused when the connector is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.errors import ConfigError


def refusal(kind: Callable[[Mapping[str, Any]], object], options: Mapping[str, Any]) -> ConfigError:
    """The error with which a sink or source refuses options."""
    with pytest.raises(ConfigError) as caught:
        kind(options)
    return caught.value
