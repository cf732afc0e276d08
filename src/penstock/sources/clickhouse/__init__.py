"""ClickHouse as a source, and the client that the sink uses too."""
