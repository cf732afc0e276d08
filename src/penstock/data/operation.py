"""The operation of a row of a change stream: what happened to the row with its key."""

from __future__ import annotations

OPERATION = "_op"
"""The column with the operation. Rows of a table without it are inserts."""
INSERT, UPDATE, DELETE = "i", "u", "d"
OPERATIONS = (INSERT, UPDATE, DELETE)
WEIGHT = "_weight"
"""The column of changes of rows without a key: how often a row comes, or goes."""
