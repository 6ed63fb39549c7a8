"""`make run`: real input, every asset and check of both code locations through Dagster, and what came of it."""
