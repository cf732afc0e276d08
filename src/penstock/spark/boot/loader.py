"""More jars for a Spark that runs already.

Spark's own `ADD JAR` changes the class loader of one JVM thread, and Python threads each have another one. Here the jars
are put at the end of the application class loader's path, as a Java agent would do it, so that data sources, JDBC drivers
and file systems are found from every thread, and `addJar` sends them to the executors of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.boot.defaults import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDED = "penstock.jars.added"
HADOOP_PREFIX = "spark.hadoop."


def append(spark: SparkSession, jars: Iterable[Path]) -> None:
    """Put jars at the end of the running driver's class path and send them to its executors."""
    jvm = _jvm(spark)
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    _open(spark, loader, "jdk.internal.loader")
    add = _method(spark, loader.getClass(), "appendToClassPathForInstrumentation", "java.lang.String")
    system = jvm.java.lang.System
    class_path = f"{system.getProperty('java.class.path')}:{system.getProperty(ADDED) or ''}".split(":")
    added = [str(jar) for jar in jars if str(jar) not in class_path]
    for jar in added:
        add.invoke(loader, _array(spark, jvm.java.lang.Object, [jar]))
    system.setProperty(ADDED, ":".join(filter(None, [system.getProperty(ADDED), *added])))
    send(spark, map(Path, added))
    # Hadoop remembers per class loader which classes were missing: a new, empty one has no such memory.
    urls = _array(spark, jvm.java.net.URL, [])
    spark.sparkContext._jsc.hadoopConfiguration().setClassLoader(jvm.java.net.URLClassLoader(urls, loader))


def send(spark: SparkSession, jars: Iterable[Path]) -> None:
    """Give the executors of a cluster the jars that the driver has on its class path."""
    if not is_local(str(spark.sparkContext.master)):
        for jar in jars:
            spark.sparkContext._jsc.addJar(str(jar))


def set_hadoop_conf(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Give a running session the `spark.hadoop.*` settings that it has not got yet."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for key, value in conf.items():
        name = key.removeprefix(HADOOP_PREFIX)
        if name != key and spark.sparkContext.getConf().get(key) is None:
            hadoop.set(name, value)


def register_jdbc_driver(spark: SparkSession, name: str) -> None:
    """Make a JDBC driver answer to its addresses."""
    _jvm(spark).org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(name)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _open(spark: SparkSession, of: Any, package: str) -> None:
    """Open a package of the module that an object's class lives in, as `--add-opens` does at the start."""
    module = of.getClass().getModule()
    open_ = _method(spark, module.getClass(), "implAddOpensToAllUnnamed", "java.lang.String")
    open_.invoke(module, _array(spark, _jvm(spark).java.lang.Object, [package]))


def _method(spark: SparkSession, owner: Any, name: str, *parameters: str) -> Any:
    find = _jvm(spark).java.lang.Class.forName
    kinds = _array(spark, _jvm(spark).java.lang.Class, [find(parameter) for parameter in parameters])
    method = owner.getDeclaredMethod(name, kinds)
    method.setAccessible(True)
    return method


def _array(spark: SparkSession, kind: Any, items: list[Any]) -> Any:
    gateway: Any = spark.sparkContext._gateway
    array = gateway.new_array(kind, len(items))
    for index, item in enumerate(items):
        array[index] = item
    return array
