"""The sinks of pipelines, as YAML has them: one model per file."""
