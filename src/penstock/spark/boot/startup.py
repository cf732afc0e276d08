"""How Spark will be started, decided from the settings before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.config import Settings
from penstock.spark.boot import archive, gateway, ml
from penstock.spark.boot.classpath import class_path, spark_home
from penstock.spark.boot.defaults import effective, is_local
from penstock.spark.boot.java import find_java
from penstock.spark.boot.options import java_options

LOG4J = Path(__file__).with_name("log4j2.properties")
# With one of these, spark-submit's own code must prepare the driver: it fetches, distributes and logs in.
SUBMIT_KEYS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.submit.pyFiles",
    "spark.kerberos.keytab",
    "spark.kerberos.principal",
)
# With one of these, something waits for a proper end of Spark.
ORDERLY_KEYS = ("spark.eventLog.enabled", "spark.extraListeners", "spark.plugins", "spark.local.dir")
HIVE = ("spark.sql.catalogImplementation", "hive")
# Set to false, no class archive is used or made.
ARCHIVE_KEY = "spark.penstock.archive"


@dataclass(frozen=True, slots=True)
class Startup:
    """What to launch and what to tell Spark.

    `quick` is the launch with the class archive, when there is one that fits; `class_archive` is where it is or would
    be, None when no archive can serve these settings. `lean` leaves machine learning's functions until they are asked
    for. `orderly` says that Spark's end must be a proper one.
    """

    launch: gateway.Launch
    conf: Mapping[str, str]
    quick: gateway.Launch | None
    class_archive: archive.Archive | None
    lean: bool
    orderly: bool


def decide(
    settings: Settings,
    *,
    app_name: str = "penstock",
    jars: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
) -> Startup:
    """Return how to start Spark with these settings, connector jars and what connectors and catalogs need."""
    items = {key: item.value for key, item in effective(settings, conf=conf).items()}
    items.setdefault("spark.app.name", app_name)
    home = spark_home()
    local = is_local(items["spark.master"])
    submit = not local or _any_set(items, SUBMIT_KEYS)
    path = class_path(home, items, jars=jars, folders=settings.conf_folders)
    own_log = any((folder / LOG4J.name).is_file() for folder in settings.conf_folders)
    plain = not submit and not path.before
    lean = plain and not (_any_set(items, ("spark.plugins",)) or ml.imported() or ml.brings_extensions(jars))
    if lean:
        items.setdefault(ml.LOAD_KEY, "false")
    launch = gateway.Launch(
        java=find_java(settings),
        class_path=path,
        options=java_options(items, log4j=None if own_log else LOG4J),
        submit=items if submit else None,
        environment=gateway.python_environment(local=local, spark_home=home),
    )
    class_archive = None
    if plain and items.get(ARCHIVE_KEY, "true") != "false":
        class_archive = archive.locate(settings.home, launch.java, path, launch.options)
    return Startup(
        launch=launch,
        conf=items,
        quick=_quick(launch, class_archive),
        class_archive=class_archive,
        lean=lean,
        orderly=not local or _any_set(items, ORDERLY_KEYS) or items.get(HIVE[0]) == HIVE[1],
    )


def _quick(launch: gateway.Launch, class_archive: archive.Archive | None) -> gateway.Launch | None:
    path = None if class_archive is None else archive.usable(class_archive, launch.class_path)
    if class_archive is None or path is None:
        return None
    return replace(launch, class_path=path, archive_options=archive.use(class_archive))


def _any_set(conf: Mapping[str, str], keys: Sequence[str]) -> bool:
    return any(conf.get(key, "false") not in ("", "false") for key in keys)
