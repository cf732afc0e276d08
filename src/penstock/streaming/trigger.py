"""When a query runs its batches, and which rows of its result it emits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from penstock.data.duration import milliseconds
from penstock.errors import ConfigError, suggest


class OutputMode(StrEnum):
    """Which rows of the result a batch emits."""

    APPEND = "append"
    """Rows that will not change any more."""
    UPDATE = "update"
    """Rows that are new or changed since the last batch."""
    COMPLETE = "complete"
    """The whole result, every time."""

    @classmethod
    def of(cls, mode: OutputMode | str) -> OutputMode:
        """Return the mode of that name; case does not matter.

        >>> OutputMode.of("Append")
        <OutputMode.APPEND: 'append'>
        """
        try:
            return cls(mode.lower())
        except (ValueError, AttributeError):
            names = [member.value for member in cls]
            raise ConfigError(
                f"unknown output mode {mode!r}",
                code="STREAM_OUTPUT_MODE",
                hint=suggest(str(mode).lower(), names, what="mode"),
            ) from None


class TriggerKind(StrEnum):
    """How batches are started."""

    ONCE = "once"
    AVAILABLE_NOW = "available_now"
    PROCESSING_TIME = "processing_time"
    CONTINUOUS = "continuous"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When batches start.

    >>> str(Trigger.processing_time("5 seconds"))
    'processing_time(5000)'
    """

    kind: TriggerKind
    interval_ms: int = 0

    @classmethod
    def once(cls) -> Trigger:
        """All that is there in one go, as a batch query would give it; no checkpoint is kept."""
        return cls(TriggerKind.ONCE)

    @classmethod
    def available_now(cls) -> Trigger:
        """All that is there, in batches with checkpoints between them, then the end."""
        return cls(TriggerKind.AVAILABLE_NOW)

    @classmethod
    def processing_time(cls, interval: int | str | timedelta) -> Trigger:
        """A batch every so often; 0 starts the next one as soon as the last is done."""
        return cls(TriggerKind.PROCESSING_TIME, milliseconds(interval, what="the interval of the trigger"))

    @classmethod
    def continuous(cls, interval: int | str | timedelta) -> Trigger:
        """Rows as they come, with a checkpoint every so often; batches back to back where the plan does not allow it."""
        return cls(TriggerKind.CONTINUOUS, milliseconds(interval, what="the interval of the trigger"))

    @property
    def ends(self) -> bool:
        """Whether a query with this trigger comes to an end by itself."""
        return self.kind in (TriggerKind.ONCE, TriggerKind.AVAILABLE_NOW)

    def __str__(self) -> str:
        return str(self.kind) if self.ends else f"{self.kind}({self.interval_ms})"
