"""The source `rate`: rows that are made up, to try a pipeline without data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from penstock.options import Count
from penstock.pipeline.node import SourceNode

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.sources.base import Source


class RateNode(SourceNode):
    """Makes rows up, to try a pipeline without data: so many per second, with a `timestamp` and a `value` that counts up from 0.

    Rows have no `_op`: all of them are inserts.
    """

    type: Literal["rate"] = Field("rate", description="`rate`")
    rows_per_second: Count = Field(1, description="how many rows are made in a second")

    def source(self, settings: Settings) -> Source:
        from penstock.sources.rate import RateSource

        return RateSource({"rows_per_second": self.rows_per_second}, settings)
