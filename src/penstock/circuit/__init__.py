"""From a plan to operators, and one step through them in topological order."""
