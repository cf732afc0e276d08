"""Starting Spark: the JVM, its class path and class archive, the PySpark session."""
