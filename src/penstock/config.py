"""Settings: where they come from and which one wins.

This is the only module that reads the environment. Later wins: built-in defaults, `config.toml` in `PENSTOCK_HOME`,
`penstock.toml` in the working directory (or the file that `PENSTOCK_CONFIG` names), the environment, arguments in code.

    # penstock.toml
    master = "local[4]"
    connectors = ["iceberg"]

    [conf]
    "spark.sql.shuffle.partitions" = 8

    [catalogs.lake]
    type = "hadoop"
    warehouse = "warehouse/"
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from penstock.errors import ConfigError, suggest

FILE_KEYS = ("master", "connectors", "conf", "catalogs", "url", "state", "flow", "flow_memory")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides how penstock runs, with the origin of each Spark setting.

    `load` reads them; only a session and the commands of the command line call it, and pass them down.
    """

    home: Path
    master: str | None = None
    connectors: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    conf_origin: Mapping[str, str] = field(default_factory=dict)
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    url: str | None = None
    token: str | None = field(default=None, repr=False)
    state: str | None = field(default=None, repr=False)
    flow: str | None = None
    flow_memory: int | str | None = None
    kafka_bootstrap_servers: str | None = None
    schema_registry_url: str | None = field(default=None, repr=False)
    postgres_url: str | None = field(default=None, repr=False)
    clickhouse_url: str | None = field(default=None, repr=False)
    java_home: str | None = None
    conf_folders: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()

    def with_arguments(
        self,
        *,
        master: str | None = None,
        connectors: tuple[str, ...] = (),
        conf: Mapping[str, Any] | None = None,
        catalogs: Mapping[str, Mapping[str, Any]] | None = None,
        flow: str | os.PathLike[str] | None = None,
        flow_memory: int | str | None = None,
    ) -> Settings:
        """Return these settings with what the caller passed in code on top."""
        own_conf = as_conf(conf or {}, where="conf=")
        return replace(
            self,
            master=master or self.master,
            connectors=tuple(dict.fromkeys((*self.connectors, *connectors))),
            conf={**self.conf, **own_conf},
            conf_origin={**self.conf_origin, **dict.fromkeys(own_conf, "conf=")},
            catalogs={**self.catalogs, **as_catalogs(catalogs or {}, where="catalogs=")},
            flow=self.flow if flow is None else os.fspath(flow),
            flow_memory=self.flow_memory if flow_memory is None else flow_memory,
        )


def load(environ: Mapping[str, str] | None = None, *, directory: Path | None = None) -> Settings:
    """Read the settings of this process: the files, then the environment."""
    env = os.environ if environ is None else environ
    home = Path(env.get("PENSTOCK_HOME") or Path.home() / ".penstock").expanduser().absolute()
    settings = Settings(
        home=home,
        token=env.get("PENSTOCK_TOKEN"),
        kafka_bootstrap_servers=env.get("PENSTOCK_KAFKA_BOOTSTRAP_SERVERS") or None,
        schema_registry_url=env.get("PENSTOCK_SCHEMA_REGISTRY_URL") or None,
        postgres_url=env.get("PENSTOCK_POSTGRES_URL") or None,
        clickhouse_url=env.get("PENSTOCK_CLICKHOUSE_URL") or None,
        java_home=env.get("JAVA_HOME") or None,
        conf_folders=_conf_folders(env),
    )
    for path in _files(env, home, directory or Path.cwd()):
        settings = _with_file(settings, path)
    env_conf = _conf_words(env.get("PENSTOCK_CONF", ""))
    return replace(
        settings,
        master=env.get("PENSTOCK_MASTER") or settings.master,
        url=env.get("PENSTOCK_URL") or settings.url,
        state=env.get("PENSTOCK_STATE") or settings.state,
        flow=env.get("PENSTOCK_FLOW") or settings.flow,
        flow_memory=env.get("PENSTOCK_FLOW_MEMORY") or settings.flow_memory,
        conf={**settings.conf, **env_conf},
        conf_origin={**settings.conf_origin, **dict.fromkeys(env_conf, "PENSTOCK_CONF")},
    )


def wants_color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether colours are welcome on a terminal; NO_COLOR turns them off."""
    env = os.environ if environ is None else environ
    return not env.get("NO_COLOR") and env.get("TERM") != "dumb"


SparkVariable = Literal["SPARK_LOCAL_IP", "SPARK_USER", "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT"]


def spark_variable(name: SparkVariable) -> str | None:
    """Return one of Spark's own variables of the environment; None when it is not set or empty."""
    return os.environ.get(name) or None


def variables() -> dict[str, str]:
    """Return all variables of the environment, for files in which users refer to them."""
    return dict(os.environ)


def secret(name: str) -> str | None:
    """Return the value of a variable of the environment that the user has named as a secret; None when it is not set or empty."""
    return os.environ.get(name) or None


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child process: this process's with the changes on top."""
    return {**os.environ, **changes}


def as_conf(conf: Mapping[str, Any], *, where: str) -> dict[str, str]:
    """Return Spark settings as the strings that Spark takes (`True` is "true")."""
    result = {}
    for key, value in conf.items():
        if not str(key).startswith("spark."):
            raise ConfigError(
                f"'{key}' is not a Spark setting",
                code="CONFIG_SPARK_KEY",
                where=where,
                hint="Spark settings start with 'spark.', as in \"spark.sql.shuffle.partitions\"",
            )
        result[str(key)] = str(value).lower() if isinstance(value, bool) else str(value)
    return result


def as_catalogs(catalogs: Mapping[str, Mapping[str, Any]], *, where: str) -> dict[str, dict[str, str]]:
    """Return catalogs as string options per name; their meaning is checked where they are used."""
    result = {}
    for name, options in catalogs.items():
        if not isinstance(options, Mapping):
            raise ConfigError(
                f"catalog '{name}' must be a table of options, got {type(options).__name__}",
                code="CONFIG_CATALOG",
                where=where,
                hint='for example {"type": "hadoop", "warehouse": "warehouse/"}',
            )
        result[name] = {str(key): str(value) for key, value in options.items()}
    return result


def _conf_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders with Spark's and Hadoop's own configuration that the user keeps."""
    named = (env.get(name) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"))
    folders = dict.fromkeys(Path(name).expanduser().absolute() for name in named if name)
    return tuple(folder for folder in folders if folder.is_dir())


def _files(env: Mapping[str, str], home: Path, directory: Path) -> list[Path]:
    named = env.get("PENSTOCK_CONFIG")
    if named and not Path(named).expanduser().is_file():
        raise ConfigError(
            f"PENSTOCK_CONFIG names a file that is not there: {named}",
            code="CONFIG_FILE_MISSING",
            hint="correct the path or unset PENSTOCK_CONFIG",
        )
    local = Path(named).expanduser() if named else directory / "penstock.toml"
    return [path for path in (home / "config.toml", local) if path.is_file()]


def _with_file(settings: Settings, path: Path) -> Settings:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the config file: {error}", code="CONFIG_FILE_SYNTAX", where=str(path)
        ) from error
    for key in content:
        if key not in FILE_KEYS:
            raise ConfigError(
                f"unknown setting '{key}'",
                code="CONFIG_UNKNOWN_KEY",
                where=str(path),
                hint=suggest(key, FILE_KEYS, what="setting"),
            )
    conf = as_conf(_table(content, "conf", path), where=str(path))
    connectors = content.get("connectors", [])
    if not isinstance(connectors, list):
        raise ConfigError(
            "'connectors' must be a list of names",
            code="CONFIG_TYPE",
            where=str(path),
            hint='write connectors = ["iceberg"]',
        )
    return replace(
        settings,
        master=content.get("master") or settings.master,
        url=content.get("url") or settings.url,
        state=content.get("state") or settings.state,
        flow=_path_of(content.get("flow"), path) or settings.flow,
        flow_memory=content.get("flow_memory") or settings.flow_memory,
        connectors=tuple(dict.fromkeys((*settings.connectors, *map(str, connectors)))),
        conf={**settings.conf, **conf},
        conf_origin={**settings.conf_origin, **dict.fromkeys(conf, str(path))},
        catalogs={
            **settings.catalogs,
            **as_catalogs(_table(content, "catalogs", path), where=str(path)),
        },
        files=(*settings.files, path),
    )


def _path_of(value: Any, path: Path) -> str | None:
    """A folder that a file names, from the folder of that file; None when it names none."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(
            "'flow' must be the path of a flow directory",
            code="CONFIG_TYPE",
            where=str(path),
            hint='write flow = "flows/orders"',
        )
    return str(path.parent / Path(value).expanduser())


def _table(content: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"'{key}' must be a table", code="CONFIG_TYPE", where=str(path), hint=f"write it as [{key}]"
        )
    if key == "conf":
        return dict(_dotted(value))
    return value


def _dotted(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Spark keys may be quoted ("spark.ui.enabled" = true) or plain (spark.ui.enabled = true, which TOML nests)."""
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        pairs.extend(_dotted(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)])
    return pairs


def _conf_words(text: str) -> dict[str, str]:
    pairs = {}
    for word in shlex.split(text):
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(
                f"'{word}' is not key=value",
                code="CONFIG_CONF_SYNTAX",
                where="PENSTOCK_CONF",
                hint='write PENSTOCK_CONF="spark.sql.shuffle.partitions=8 spark.ui.enabled=true"',
            )
        pairs[key] = value
    return as_conf(pairs, where="PENSTOCK_CONF")
