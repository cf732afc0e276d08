"""Every function of Spark's registry, called with arguments of every type it takes: a view's answer next to a batch query's."""
