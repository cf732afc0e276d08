"""Rows through an HTTP service: they are posted as JSON, and what it answers are the rows that go on."""
