"""The values of one job in one namespace of the state backend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from penstock.backend.backend import Backend
    from penstock.backend.model import Lease


@dataclass(frozen=True, slots=True)
class JobValues:
    """What is remembered of a job; with a lease it is written only as long as the lease is the job's."""

    backend: Backend
    job: str
    namespace: str
    lease: Lease | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return self.backend.state.get(self.job, key, default, namespace=self.namespace)

    def put(self, key: str, value: Any) -> None:
        """Set the value of a key."""
        self.backend.state.put(self.job, key, value, namespace=self.namespace, lease=self.lease)

    def swap(self, key: str, old: Any, new: Any) -> bool:
        """Set the value of a key if it is still `old` (None: not there); False, and nothing set, when it is not."""
        return self.backend.state.swap(self.job, key, old, new, namespace=self.namespace, lease=self.lease)

    def remove(self, key: str) -> None:
        """Forget a key; one that is not there is no error."""
        self.backend.state.remove(self.job, key, namespace=self.namespace, lease=self.lease)

    def clear(self) -> None:
        """Forget all, also what is in namespaces within."""
        self.backend.state.clear(self.job, namespace=self.namespace, lease=self.lease)

    def within(self, part: str) -> Self:
        """The values of a part of the job, such as a node, apart from those of others; its name has no slash."""
        return replace(self, namespace=f"{self.namespace}/{part}")
