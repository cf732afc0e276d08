"""A kernel in shards inside Spark tasks: one job per change, in which the tasks exchange rows with each other."""
