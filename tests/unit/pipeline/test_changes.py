"""What is recorded of nodes, to tell whether they have changed."""

from __future__ import annotations

import hashlib

from penstock.pipeline.changes import fingerprints
from pipeline_text import check_text

TEXT = """\
sources: {a: {type: rate}}
sinks:
  plain: {type: print, from: a}
  out: {type: postgres, from: a, table: t, output_mode: append, url: "postgresql://ann:PASSWORD@db/x"}
"""


def test_a_password_is_part_of_what_is_recorded_and_nobody_finds_it_by_trying() -> None:
    one, other = (
        check_text(TEXT.replace("PASSWORD", word), "p.yaml", environ={}).spec for word in ("abc", "abd")
    )
    assert fingerprints(one) == fingerprints(one)
    assert fingerprints(one)["plain"] == fingerprints(other)["plain"]
    assert fingerprints(one)["out"] != fingerprints(other)["out"]
    quick = hashlib.sha256(one.nodes["out"].model.model_dump_json().encode()).hexdigest()
    assert not quick.startswith(fingerprints(one)["out"]["hash"])
