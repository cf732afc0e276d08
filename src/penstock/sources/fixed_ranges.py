"""A bounded source as ranges that are fixed at the first start: one small file each, so that Spark's source of files tracks them.

Spark notes which files an epoch has, reads exactly those again after a crash, takes so many per epoch, and ends when
there are no more. The rows of a range are read by the tasks that get its file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.sources.base import SourceContext

PLAN, RANGES = "plan.json", "ranges"
FOLDER = "folder"
"""Under which a source remembers which folder is its own."""


def folder_of(context: SourceContext) -> Folder:
    """Return the folder of a source, which may be a temporary one.

    Its name is among what the source remembers: of two processes that plan a first start, each has its own, and that
    of the one which runs counts.
    """
    if context.folder is None or context.state is None:
        return Folder(context.spark, context.folder or context.temporary_folder())
    name = context.state.get(FOLDER)
    if name is None:
        name = uuid.uuid4().hex
        context.state.put(FOLDER, name)
    return Folder(context.spark, f"{context.folder}/{name}")


def fixed(folder: Folder, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what was made at the first start, or make it now: a dictionary that JSON can say."""
    if not folder.exists(PLAN):
        folder.write(f"{PLAN}.new", json.dumps(make()))
        folder.move(f"{PLAN}.new", PLAN)
    plan: dict[str, Any] = json.loads(folder.read(PLAN))
    return plan


def stream(context: SourceContext, folder: Folder, ranges: Sequence[Any], *, per_epoch: int) -> DataFrame:
    """Return a stream of ranges, as JSON in the column `value`, of which one epoch has so many."""
    written = set(folder.names(RANGES))
    for number, bounds in enumerate(ranges):
        name = f"{number:08}.json"
        if name not in written:
            # Moved there whole: a query may be looking already.
            folder.write(f"{name}.new", json.dumps(bounds))
            folder.move(f"{name}.new", f"{RANGES}/{name}")
    reader = context.spark.readStream.format("text").schema("value STRING")
    return reader.option("maxFilesPerTrigger", per_epoch).load(f"{folder.url}/{RANGES}")
