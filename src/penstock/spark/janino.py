"""Java classes of ours, compiled in the driver's JVM by the compiler that Spark itself uses for generated code."""

from __future__ import annotations

import hashlib
import threading
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPILING = threading.Lock()


def instance(spark: SparkSession, package: str, name: str) -> Any:
    """Return a new instance of the class `name` in the file `name`.java of a Python package, compiled once per JVM.

    The class is kept in the JVM, under a package named after its source, because py4j remembers methods by class name.
    """
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    source = files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")
    unique = f"penstock.{name.lower()}{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    known = jvm.java.lang.System.getProperties()
    with _COMPILING:  # two classes of one name would be taken for each other
        found = known.get(unique)
        if found is None:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.setSourceVersion(8)
            compiler.setTargetVersion(8)
            compiler.cook(source.replace("package penstock;", f"package {unique};", 1))
            found = compiler.getClassLoader().loadClass(f"{unique}.{name}")
            known.put(unique, found)
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    nothing = gateway.new_array(jvm.java.lang.Object, 0)
    return found.getDeclaredConstructor(no_types).newInstance(nothing)
