"""An Iceberg catalog that does not answer now and then, for the sinks of views: before a commit, or behind it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.engine import follow
from penstock.sinks.iceberg_view import IcebergViewSink
from penstock.sinks.retry import RetryPolicy


class Away(Exception):
    """The catalog does not answer."""


def faulty_commits(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> dict[str, float]:
    """Let commits of views fail before or behind the commit, with the odds of the answer, which are none at first."""
    odds = {"odds": 0.0}
    for name in ("_merge", "_overwrite"):
        write = getattr(IcebergViewSink, name)

        def faulty(self: IcebergViewSink, *arguments: Any, write: Any = write) -> None:
            if rng.random() < odds["odds"]:
                raise Away
            write(self, *arguments)
            if rng.random() < odds["odds"]:
                raise Away

        monkeypatch.setattr(IcebergViewSink, name, faulty)
    monkeypatch.setattr(
        IcebergViewSink, "transient", lambda _, error: "away" if isinstance(error, Away) else None
    )
    monkeypatch.setattr(
        follow, "RetryPolicy", lambda seconds: RetryPolicy(seconds, first=0.001, longest=0.002)
    )
    return odds
