"""Look-ups: values by key from another system, beside the rows of a stream."""
