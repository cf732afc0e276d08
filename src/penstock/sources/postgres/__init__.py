"""Tables of PostgreSQL as streams: their rows once, and their changes by logical replication."""
