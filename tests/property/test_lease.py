"""Leases against a model of them: any order of takers, renewals, releases and ends."""

from __future__ import annotations

import tempfile
import time

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.backend import Lease, Owner, open_backend
from penstock.errors import StateError

OWNERS = st.integers(1, 3)
LONG, SHORT = 60_000, 1


class Leases(RuleBasedStateMachine):
    """At most one owner holds the job, and only the last lease can be renewed, released or written with."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.backend = open_backend(f"sqlite:///{self.folder.name}/state.db")
        self.given: list[Lease] = []
        self.holds = False
        self.commits: list[int] = []

    def teardown(self) -> None:
        self.backend.close()
        self.folder.cleanup()

    @rule(owner=OWNERS, ends=st.booleans())
    def take(self, owner: int, ends: bool) -> None:
        try:
            lease = self.backend.leases.acquire("job", Owner("host", owner), ttl_ms=SHORT if ends else LONG)
        except StateError as error:
            taken, code = False, error.code
        else:
            taken, code = True, ""
            self.given.append(lease)
        assert taken is not self.holds, code
        if ends:
            time.sleep(0.003)
        self.holds = self.holds or not ends

    @rule(place=st.integers(0, 20))
    def renew(self, place: int) -> None:
        if self.given:
            lease = self.given[place % len(self.given)]
            assert self.backend.leases.renew(lease) == (self.holds and lease is self.given[-1])

    @rule(place=st.integers(0, 20))
    def release(self, place: int) -> None:
        if self.given:
            lease = self.given[place % len(self.given)]
            mine = self.holds and lease is self.given[-1]
            assert self.backend.leases.release(lease) == mine
            self.holds = self.holds and not mine

    @rule(place=st.integers(0, 20))
    def write(self, place: int) -> None:
        if self.given:
            lease = self.given[place % len(self.given)]
            try:
                self.backend.epochs.commit(lease, len(self.commits))
                written = True
            except StateError:
                written = False
            # A lease that has ended but was not taken by another still has nobody to be in the way of.
            assert written == (lease is self.given[-1])
            self.commits += [lease.epoch] if written else []

    @invariant()
    def epochs_grow(self) -> None:
        assert [lease.epoch for lease in self.given] == list(range(1, len(self.given) + 1))
        assert self.commits == sorted(self.commits)


TestLeases = Leases.TestCase
TestLeases.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
