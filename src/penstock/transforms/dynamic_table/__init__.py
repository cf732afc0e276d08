"""Dynamic tables: sets of values that change while a pipeline runs, and that SQL asks with `dynamic_table_check(name, value)`."""
