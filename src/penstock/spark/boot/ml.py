"""Spark's machine learning functions, registered when somebody imports `pyspark.ml`.

Every stock session registers a handful of them at start, which takes a third of the whole start: Scala's reflection is
brought up for it. They are reachable only through `pyspark.ml`, so its import is early enough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOAD_KEY = "spark.sql.extensions.test.loadFromCp"
PACKAGES = ("pyspark.ml", "pyspark.mllib")
REGISTRATION = "org.apache.spark.sql.ml.InternalFunctionRegistration$"
PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"


def imported() -> bool:
    """Whether this process uses machine learning already."""
    return any(package in sys.modules for package in PACKAGES)


def brings_extensions(jars: Iterable[Path]) -> bool:
    """Whether one of the jars adds to every session by being on the class path; only the stock way loads these."""
    import zipfile

    for jar in jars:
        try:
            with zipfile.ZipFile(jar) as content:
                if PROVIDERS in content.NameToInfo:
                    return True
        except (OSError, zipfile.BadZipFile):
            continue
    return False


def register_on_import(spark: SparkSession) -> None:
    """Register the functions in this session's JVM as soon as machine learning is imported."""
    forget()
    sys.meta_path.insert(0, _Finder(spark))


def forget() -> None:
    """Take the hook away: its JVM is gone."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


class _Finder(MetaPathFinder):
    """Finds nothing; it only notices the import."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in PACKAGES:
            forget()
            jvm: Any = self.spark._sc._jvm
            jvm.java.lang.Class.forName(REGISTRATION)
        return None
