"""The ClickHouse sink."""
