"""Java classes of ours, compiled in the driver's JVM by the compiler that Spark itself uses for generated code.

A JVM that has just started takes most of a second for a few hundred lines, so what it has compiled is kept in the home of
penstock for those that come later.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import zipfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock import config

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
            kept = config.load().home / "java" / f"{unique}-{spark.version}.jar"
            found = _kept(jvm, gateway, kept, f"{unique}.{name}")
            if found is None:
                code = source.replace("package penstock;", f"package {unique};", 1)
                found = _compiled(jvm, code, f"{unique}.{name}", kept)
            known.put(unique, found)
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    nothing = gateway.new_array(jvm.java.lang.Object, 0)
    return found.getDeclaredConstructor(no_types).newInstance(nothing)


def _kept(jvm: Any, gateway: Any, jar: Path, name: str) -> Any:
    """The class in a jar that an earlier process has made, or None."""
    from py4j.protocol import Py4JJavaError

    if not jar.exists():
        return None
    places = gateway.new_array(jvm.java.net.URL, 1)
    places[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    try:
        return jvm.java.net.URLClassLoader.newInstance(places, _parent(jvm)).loadClass(name)
    except Py4JJavaError:  # it is damaged: compile again, and write over it
        return None


def _compiled(jvm: Any, code: str, name: str, jar: Path) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(_parent(jvm))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(code)
    with contextlib.suppress(OSError):  # a home that nobody may write to
        _keep(jar, compiler.getBytecodes())
    return compiler.getClassLoader().loadClass(name)


def _keep(jar: Path, classes: Mapping[str, bytes]) -> None:
    """Write classes to a jar, whole or not at all."""
    jar.parent.mkdir(parents=True, exist_ok=True)
    draft = jar.with_suffix(f".{uuid4().hex}")
    try:
        with zipfile.ZipFile(draft, "w") as target:
            for name, code in classes.items():
                target.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        draft.replace(jar)
    finally:
        draft.unlink(missing_ok=True)


def _parent(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()
