"""Values that are fixed while a group is planned, before its lease is taken: they are stored once the group runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.backend.job_values import JobValues

SOURCES = "sources"
"""The namespace of what a group and its sources remember."""
Stored = Mapping[tuple[str, str], Any]
"""Values by namespace and key, as the state backend has them."""


@dataclass(frozen=True, slots=True)
class PlannedValues:
    """The values of a group, or of one of its sources, as they are to be."""

    values: dict[tuple[str, str], Any]
    namespace: str = SOURCES

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.values.get((self.namespace, key), default)

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self.values[self.namespace, key] = value

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""
        self.values.pop((self.namespace, key), None)

    def clear(self) -> None:
        """Forget all, also what is in namespaces within."""
        for namespace, key in list(self.values):
            if f"{namespace}/".startswith(f"{self.namespace}/"):
                del self.values[namespace, key]

    def within(self, part: str) -> Self:
        """The values of a source, apart from those of others."""
        return replace(self, namespace=f"{self.namespace}/{part}")


@dataclass(frozen=True, slots=True)
class GroupValues:
    """What a group remembers: as it was when the group was planned, and as it is to be when it runs."""

    before: Stored
    planned: PlannedValues = field(default_factory=lambda: PlannedValues({}))

    @classmethod
    def of(cls, stored: Stored, *, begins: bool) -> GroupValues:
        """What is stored, or nothing for a group that begins: what was fixed for another run is not true of it."""
        return cls(stored, PlannedValues({} if begins else dict(stored)))

    def store(self, values: JobValues) -> None:
        """Store what was planned, all or nothing; called when the lease is ours.

        Raises StateError when another process has run the group since it was planned.
        """
        state, job = values.backend.state, values.job
        if state.items(job, namespace=values.namespace) != self.before:
            raise StateError(
                f"'{job}' was run by another process while it was planned here",
                code="PIPELINE_PLANNED",
                where=values.backend.location,
                hint="start it again",
            )
        if self.planned.values == self.before:
            return
        with values.backend.transaction() as connection:
            state.clear(job, namespace=values.namespace, lease=values.lease, connection=connection)
            for (namespace, key), value in self.planned.values.items():
                state.put(job, key, value, namespace=namespace, connection=connection)
