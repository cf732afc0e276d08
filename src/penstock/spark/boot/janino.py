"""Java classes of ours, compiled in the driver's JVM by the compiler that Spark itself uses for generated code.

A JVM that has just started takes most of a second for a few hundred lines, so it stores what it has compiled in a
folder for later ones. The session that starts a JVM, or finds one that penstock did not start, names the folder
(`use_folder`); those that share the JVM share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from penstock.spark.boot import loader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "penstock.java.folder"
_COMPILING = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Maker:
    """How instances of a class are made in its JVM."""

    constructor: Any
    no_arguments: Any

    def new(self) -> Any:
        """Return a new instance."""
        return self.constructor.newInstance(self.no_arguments)


_MAKERS: WeakKeyDictionary[Any, dict[tuple[str, str], _Maker]] = WeakKeyDictionary()
"""By the gateway to a JVM and the name of the class: to ask the JVM for a class takes a dozen calls."""


def use_folder(spark: SparkSession, folder: Path) -> None:
    """Store compiled classes of this JVM in a folder, unless it has one."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.getProperties().putIfAbsent(FOLDER, str(folder))


def instance(spark: SparkSession, package: str, name: str) -> Any:
    """Return a new instance of the class `name` in the file `name`.java of a Python package, compiled once per JVM.

    The class is kept in the JVM, under a package named after its source, because py4j remembers methods by class name.
    """
    maker = _MAKERS.get(spark.sparkContext._gateway, {}).get((package, name))
    if maker is not None:
        return maker.new()
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    source = _source(package, name)
    properties = jvm.java.lang.System.getProperties()
    with _COMPILING:  # two classes of one name would be taken for each other
        java_class = properties.get(source.unique)
        if java_class is None:
            jar = _jar(spark, source)
            java_class = _stored(jvm, gateway, jar, source.name)
            if java_class is None:
                compiler = _compiler(jvm, source)
                if jar is not None:
                    with contextlib.suppress(OSError):  # a home that is read-only
                        _store(jar, compiler.getBytecodes())
                java_class = compiler.getClassLoader().loadClass(source.name)
            properties.put(source.unique, java_class)
    maker = _maker(jvm, gateway, java_class)
    _MAKERS.setdefault(gateway, {})[package, name] = maker
    return maker.new()


def instance_for_tasks(spark: SparkSession, package: str, name: str) -> Any:
    """Return what `instance` does, of a class that the tasks of Spark know too: it is on the class path, of executors as well."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway
    source = _source(package, name)
    properties = jvm.java.lang.System.getProperties()
    with _COMPILING:
        java_class = properties.get(source.unique)
        if java_class is None:
            java_class = _on_class_path(spark, source)
            properties.put(source.unique, java_class)
    return _maker(jvm, gateway, java_class).new()


def _on_class_path(spark: SparkSession, source: _Source) -> Any:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    system = jvm.java.lang.ClassLoader.getSystemClassLoader()
    jar = _jar(spark, source)
    if jar is not None and jar.exists():
        with contextlib.suppress(Py4JJavaError):  # it is damaged: compile again
            loader.append(spark, [jar])
            return jvm.java.lang.Class.forName(source.name, True, system)
    classes = _compiler(jvm, source).getBytecodes()
    spare = Path(jvm.java.lang.System.getProperty("java.io.tmpdir")) / f"{source.unique}.jar"
    for place in (jar, spare):
        if place is None or (place is jar and place.exists()):
            continue
        with contextlib.suppress(OSError):  # a home that is read-only
            _store(place, classes)
            loader.append(spark, [place])
            break
    return jvm.java.lang.Class.forName(source.name, True, system)


@dataclass(frozen=True, slots=True)
class _Source:
    """The text of a class, in a package that is named after the text."""

    unique: str
    name: str
    code: str


def _source(package: str, name: str) -> _Source:
    text = files(package).joinpath(f"{name}.java").read_text(encoding="utf-8")
    unique = f"penstock.{name.lower()}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return _Source(unique, f"{unique}.{name}", text.replace("package penstock;", f"package {unique};", 1))


def _jar(spark: SparkSession, source: _Source) -> Path | None:
    jvm: Any = spark._jvm
    folder = jvm.java.lang.System.getProperties().get(FOLDER)
    return None if folder is None else Path(folder) / f"{source.unique}-{spark.version}.jar"


def _maker(jvm: Any, gateway: Any, java_class: Any) -> _Maker:
    no_types = gateway.new_array(jvm.java.lang.Class, 0)
    no_arguments = gateway.new_array(jvm.java.lang.Object, 0)
    return _Maker(java_class.getDeclaredConstructor(no_types), no_arguments)


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


def _compiler(jvm: Any, source: _Source) -> Any:
    """The compiler, after it has compiled the class."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(_parent(jvm))
    compiler.setSourceVersion(8)
    compiler.setTargetVersion(8)
    compiler.cook(source.code)
    return compiler


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
