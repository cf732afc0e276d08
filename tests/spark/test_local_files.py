"""Files on a local disk are made without processes, and otherwise as Hadoop makes them."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.micro_batch import local_files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_checkpoint_has_the_permissions_that_hadoop_gives(session: ps.Session, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.json").write_text('{"k": 1}\n')
        stream = session.read_stream.json(tmp_path / "in", schema="k BIGINT").key_by("k").agg(n=F.count("*"))
        writer = stream.write_stream.output_mode("update").trigger(ps.Trigger.available_now())
        writer = writer.format("memory").option("checkpoint.location", tmp_path / "ckpt")
        query = writer.start("permissions")
        query.await_termination()
        [row] = [row for batch in query.memory_batches() for row in batch.to_pylist()]
        assert row == {"k": 1, "n": number}
    made = [path for path in (tmp_path / "ckpt").rglob("*") if not path.name.endswith(".tmp")]
    assert {mode(path) for path in made if path.is_dir()} == {0o755}
    assert {mode(path) for path in made if path.is_file()} == {0o644}
    for log in ("offsets", "commits"):
        names = {path.name for path in (tmp_path / "ckpt" / log).iterdir()}
        assert names == {"0", ".0.crc", "1", ".1.crc"}


def test_permissions_of_every_kind(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    assert local_files.quicken(spark)
    assert local_files.quicken(spark)
    files = jvm.org.apache.hadoop.fs.FileSystem.get(
        jvm.java.net.URI.create("file:///"), spark.sparkContext._jsc.hadoopConfiguration()
    )
    assert files.getRaw().getClass().getSimpleName() == "Raw"
    folder, file, link = tmp_path / "a folder", tmp_path / "a file; with 'signs'", tmp_path / "link"
    folder.mkdir()
    file.touch()
    link.symlink_to(file)
    for path, asked in ((folder, 0o1777), (folder, 0o700), (file, 0), (file, 0o640), (link, 0o604)):
        files.setPermission(
            jvm.org.apache.hadoop.fs.Path(str(path)), jvm.org.apache.hadoop.fs.permission.FsPermission(asked)
        )
        assert mode(path) == asked
    assert mode(file) == 0o604
