"""The domain and the plain parts of `resources`, without Dagster."""
