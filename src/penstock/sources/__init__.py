"""Where rows come from: one connector per file."""
