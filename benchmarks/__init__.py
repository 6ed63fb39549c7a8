"""Ratios measured in one run, against a named baseline and the physical limit; each file is a script of its own."""
