"""Pipelines in YAML: a file becomes a graph of nodes, the graph becomes streaming queries and views, and they run."""
