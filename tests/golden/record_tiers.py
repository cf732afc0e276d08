"""Record the tier of every operator in the views of the golden cases and of TPC-H.

PYTHONPATH=tests python -m golden.record_tiers [area ...]

It needs the recorded answers. Without areas, all of them and TPC-H are recorded.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import penstock as ps

from . import drive, tpch
from .case import Area, area_names, load
from .recording import recorded, save, save_tpch, tiers_of
from .spark_answer import settings


def main(areas: list[str]) -> None:
    with ps.Session.embedded(master="local[2]") as session:
        for name in areas or area_names():
            _record(session, load(name))
        if not areas:
            flow = drive.open_flow(session, tpch.ddl())
            save_tpch(
                {name: tiers_of(flow.register_view(name, query)) for name, query in tpch.QUERIES.items()}
            )


def _record(session: ps.Session, area: Area) -> None:
    recordings = recorded(area.name)
    with settings(session.spark, area.conf):
        for case in area.cases:
            flow = drive.open_flow(session, area.tables)
            recordings[case.name] = replace(recordings[case.name], tiers=drive.register(flow, case))
    save(area, recordings)


if __name__ == "__main__":
    main(sys.argv[1:])
