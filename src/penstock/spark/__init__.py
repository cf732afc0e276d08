"""Everything that touches PySpark: starting it, reading its plans, moving rows in and out."""
