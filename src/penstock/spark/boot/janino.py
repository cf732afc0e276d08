"""Java classes of ours, compiled in the driver's JVM by the compiler that Spark itself uses for generated code.

A JVM that has just started takes most of a second for a few hundred lines, so it stores what it has compiled in a folder for later
ones. The session that starts a JVM, or finds one that penstock did not start, names the folder (`use_folder`); those that share the JVM
share it.
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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "penstock.java.folder"
_COMPILING = threading.Lock()


def use_folder(spark: SparkSession, folder: Path) -> None:
    """Store compiled classes of this JVM in a folder, unless it has one."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.getProperties().putIfAbsent(FOLDER, str(folder))


def instance(spark: SparkSession, package: str, name: str) -> Any:
    """Return a new instance of the class `name` in the file `name`.java of a Python package, compiled once per JVM.

    The class is kept in the JVM, under a package named after its source, because py4j remembers methods by class name.
    """
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    source = files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")
    unique = f"penstock.{name.lower()}{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    properties = jvm.java.lang.System.getProperties()
    with _COMPILING:  # two classes of one name would be taken for each other
        java_class = properties.get(unique)
        if java_class is None:
            folder = properties.get(FOLDER)
            jar = None if folder is None else Path(folder) / f"{unique}-{spark.version}.jar"
            java_class = _stored(jvm, gateway, jar, f"{unique}.{name}")
            if java_class is None:
                code = source.replace("package penstock;", f"package {unique};", 1)
                java_class = _compiled(jvm, code, f"{unique}.{name}", jar)
            properties.put(unique, java_class)
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    no_arguments = gateway.new_array(jvm.java.lang.Object, 0)
    return java_class.getDeclaredConstructor(no_types).newInstance(no_arguments)


def _stored(jvm: Any, gateway: Any, jar: Path | None, name: str) -> Any:
    """The class in a jar that an earlier process has written, or None."""
    from py4j.protocol import Py4JJavaError

    if jar is None or not jar.exists():
        return None
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    try:
        return jvm.java.net.URLClassLoader.newInstance(urls, _parent(jvm)).loadClass(name)
    except Py4JJavaError:  # it is damaged: compile again, and write over it
        return None


def _compiled(jvm: Any, code: str, name: str, jar: Path | None) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(_parent(jvm))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(code)
    if jar is not None:
        with contextlib.suppress(OSError):  # a home that is read-only
            _store(jar, compiler.getBytecodes())
    return compiler.getClassLoader().loadClass(name)


def _store(jar: Path, classes: Mapping[str, bytes]) -> None:
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
