from __future__ import annotations

from pathlib import Path

import pytest

from penstock import config
from penstock.errors import ConfigError


def test_later_places_win(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        'master = "local[1]"\nconnectors = ["kafka"]\n[conf]\n"spark.a" = 1\n"spark.b" = 1\n"spark.c" = 1\n'
    )
    (tmp_path / "penstock.toml").write_text(
        'connectors = ["iceberg"]\n[conf]\nspark.b = 2\n"spark.c" = 2\n[catalogs.lake]\ntype = "hadoop"\n'
    )
    env = {
        "PENSTOCK_HOME": str(home),
        "PENSTOCK_CONF": "spark.c=3 'spark.d=x y'",
        "PENSTOCK_MASTER": "local[2]",
    }
    settings = config.load(env, directory=tmp_path).with_arguments(conf={"spark.d": True})
    assert settings.conf == {"spark.a": "1", "spark.b": "2", "spark.c": "3", "spark.d": "true"}
    assert settings.conf_origin["spark.b"] == str(tmp_path / "penstock.toml")
    assert settings.conf_origin["spark.c"] == "PENSTOCK_CONF"
    assert settings.conf_origin["spark.d"] == "conf="
    assert settings.master == "local[2]"
    assert settings.connectors == ("kafka", "iceberg")
    assert settings.catalogs == {"lake": {"type": "hadoop"}}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("master = ", "CONFIG_FILE_SYNTAX"),
        ('mastr = "local"', "CONFIG_UNKNOWN_KEY"),
        ("[conf]\nshuffle = 1", "CONFIG_SPARK_KEY"),
        ('connectors = "kafka"', "CONFIG_TYPE"),
        ("conf = 1", "CONFIG_TYPE"),
        ("[catalogs]\nlake = 1", "CONFIG_CATALOG"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "penstock.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.load({"PENSTOCK_HOME": str(tmp_path / "home")}, directory=tmp_path)
    assert caught.value.code == code
    assert caught.value.where == str(tmp_path / "penstock.toml")


def test_a_child_process_gets_this_environment_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", "sqlite:///mine.db")
    monkeypatch.setenv("SPARK_USER", "ann")
    environment = config.child_environment({"PENSTOCK_STATE": "sqlite:///other.db"})
    assert environment["PENSTOCK_STATE"] == "sqlite:///other.db"
    assert environment["SPARK_USER"] == "ann"


def test_an_empty_variable_of_spark_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_USER", "ann")
    monkeypatch.setenv("SPARK_LOCAL_IP", "")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert config.spark_variable("SPARK_USER") == "ann"
    assert config.spark_variable("SPARK_LOCAL_IP") is None
    assert config.spark_variable("PYSPARK_GATEWAY_PORT") is None


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_CONFIG"):
        config.load({"PENSTOCK_CONFIG": str(tmp_path / "none.toml")}, directory=tmp_path)


def test_words_that_are_not_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not key=value"):
        config.load({"PENSTOCK_CONF": "spark.a", "PENSTOCK_HOME": str(tmp_path)}, directory=tmp_path)


def test_the_token_is_not_shown(tmp_path: Path) -> None:
    settings = config.load({"PENSTOCK_TOKEN": "secret", "PENSTOCK_HOME": str(tmp_path)}, directory=tmp_path)
    assert "secret" not in repr(settings)


def test_configuration_folders_of_spark_and_hadoop_are_kept(tmp_path: Path) -> None:
    (tmp_path / "spark").mkdir()
    env = {
        "PENSTOCK_HOME": str(tmp_path),
        "SPARK_CONF_DIR": str(tmp_path / "spark"),
        "HADOOP_CONF_DIR": str(tmp_path / "none"),
        "YARN_CONF_DIR": str(tmp_path / "spark"),
    }
    assert config.load(env, directory=tmp_path).conf_folders == (tmp_path / "spark",)


def test_addresses_of_servers_come_from_the_environment(tmp_path: Path) -> None:
    env = {
        "PENSTOCK_HOME": str(tmp_path),
        "PENSTOCK_KAFKA_BOOTSTRAP_SERVERS": "k:9092",
        "PENSTOCK_POSTGRES_URL": "postgresql://me:secret@db/shop",
        "PENSTOCK_CLICKHOUSE_URL": "http://me:secret@db/shop",
    }
    settings = config.load(env, directory=tmp_path)
    assert settings.kafka_bootstrap_servers == "k:9092"
    assert settings.postgres_url == "postgresql://me:secret@db/shop"
    assert settings.clickhouse_url == "http://me:secret@db/shop"
    assert "secret" not in repr(settings)


def test_the_flow_directory(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('flow = "flows/orders"')
    env = {"PENSTOCK_HOME": str(tmp_path / "home")}
    settings = config.load(env, directory=tmp_path)
    assert settings.flow == str(tmp_path / "flows" / "orders")
    assert config.load({**env, "PENSTOCK_FLOW": "elsewhere"}, directory=tmp_path).flow == "elsewhere"
    assert settings.with_arguments(flow=Path("here")).flow == "here"
    assert settings.with_arguments().flow == settings.flow
    (tmp_path / "penstock.toml").write_text("flow = 1")
    with pytest.raises(ConfigError, match="'flow' must be the path"):
        config.load(env, directory=tmp_path)


def test_the_memory_of_the_flow(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text('flow_memory = "2 GB"')
    env = {"PENSTOCK_HOME": str(tmp_path / "home")}
    settings = config.load(env, directory=tmp_path)
    assert settings.flow_memory == "2 GB"
    assert config.load({**env, "PENSTOCK_FLOW_MEMORY": "1MB"}, directory=tmp_path).flow_memory == "1MB"
    assert settings.with_arguments(flow_memory=7).flow_memory == 7
    assert settings.with_arguments().flow_memory == "2 GB"
