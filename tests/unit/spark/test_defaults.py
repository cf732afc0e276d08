from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Settings
from penstock.errors import ConfigError
from penstock.spark.boot.defaults import GIBIBYTE, Machine, effective, local_cores, this_machine
from penstock.spark.boot.options import heap, java_options, user_options

MACHINE = Machine(cores=6, memory=16 * GIBIBYTE)


def test_defaults_follow_the_machine_and_say_why() -> None:
    conf = effective(Settings(home=Path("/none")), machine=MACHINE)
    assert conf["spark.master"].value == "local[*,4]"
    assert conf["spark.sql.shuffle.partitions"].value == "6"
    assert conf["spark.driver.memory"].value == "4096m"
    assert all(item.origin == "default" and item.reason for item in conf.values())
    assert "spark.sql.session.timeZone" not in conf
    assert "spark.sql.ansi.enabled" not in conf


@pytest.mark.parametrize(("memory", "expected"), [(1, "1024m"), (16, "4096m"), (256, "8192m")])
def test_driver_memory_is_bounded(memory: int, expected: str) -> None:
    conf = effective(Settings(home=Path("/none")), machine=Machine(2, memory * GIBIBYTE))
    assert conf["spark.driver.memory"].value == expected


def test_the_user_wins_and_is_named() -> None:
    settings = Settings(home=Path("/none"), master="local[3]").with_arguments(
        conf={"spark.sql.shuffle.partitions": 64, "spark.ui.enabled": True}
    )
    conf = effective(settings, conf={"spark.ui.enabled": "false", "spark.x": "1"}, machine=MACHINE)
    assert (conf["spark.sql.shuffle.partitions"].value, conf["spark.sql.shuffle.partitions"].origin) == (
        "64",
        "conf=",
    )
    assert conf["spark.ui.enabled"].value == "true"
    assert (conf["spark.x"].value, conf["spark.x"].origin) == ("1", "connectors")
    assert conf["spark.master"].value == "local[3]"


def test_extensions_of_connectors_and_user_are_joined() -> None:
    settings = Settings(home=Path("/none")).with_arguments(conf={"spark.sql.extensions": "a.B, c.D"})
    conf = effective(settings, conf={"spark.sql.extensions": "e.F,a.B"}, machine=MACHINE)
    assert conf["spark.sql.extensions"].value == "e.F,a.B,c.D"


def test_a_cluster_keeps_sparks_own_defaults() -> None:
    conf = effective(Settings(home=Path("/none"), master="spark://host:7077"), machine=MACHINE)
    assert "spark.sql.shuffle.partitions" not in conf
    assert "spark.driver.host" not in conf


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[*]", 6), ("local[3]", 3), ("local[*,4]", 6), ("local[2, 4]", 2), ("yarn", None)],
)
def test_local_cores(master: str, cores: int | None) -> None:
    assert local_cores(master, MACHINE) == cores


def test_this_machine_has_something() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory > 100 << 20


def test_jvm_options_come_from_settings() -> None:
    options = java_options(
        {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Da='b c' -XX:+UseG1GC"}, log4j=None
    )
    assert "-Xmx2g" in options
    assert options[-2:] == ("-Da=b c", "-XX:+UseG1GC")


@pytest.mark.parametrize(
    ("given", "expected"), [("2g", "2g"), ("512", "512m"), ("1500 MB", "1500m"), ("1GiB", "1g")]
)
def test_heap(given: str, expected: str) -> None:
    assert heap(given) == expected


def test_bad_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="not a size"):
        heap("lots")
    with pytest.raises(ConfigError, match="-Xmx"):
        user_options({"spark.driver.extraJavaOptions": "-Xmx4g"})
    with pytest.raises(ConfigError, match="quotation"):
        user_options({"spark.driver.extraJavaOptions": "-Da='b"})


def test_spark_defaults_are_read_below_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# comment\nspark.executor.memory   3g\nspark.ui.enabled=true\nspark.a: b c \nnothing\n"
    )
    settings = Settings(home=Path("/none"), conf_folders=(tmp_path,)).with_arguments(
        conf={"spark.ui.enabled": False}
    )
    conf = effective(settings, machine=MACHINE)
    assert (conf["spark.executor.memory"].value, conf["spark.a"].value) == ("3g", "b c")
    assert conf["spark.a"].origin == str(tmp_path / "spark-defaults.conf")
    assert conf["spark.ui.enabled"].value == "false"
