"""Indexed state: sorted runs, spines of runs, slots and ordered runs."""
