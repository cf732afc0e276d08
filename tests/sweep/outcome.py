"""What came of a call: the tier that computes it and whether the view's answer is Spark's.

"by order": Spark's own answer is another one when the same rows come in another order, so that no view can have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sweep.call import Call

Verdict = Literal["right", "by order", "refused", "WRONG"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: `tier` is "" when the view was refused; `reason` says why it is not the kernel, or why it was refused."""

    call: Call
    tier: str
    verdict: Verdict
    reason: str = ""
    code: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.call.function}: {self.call}: {self.verdict} [{self.tier}] {self.code} {self.reason} {self.detail}".rstrip()
