"""The VIN offline store domain: format, reading, statistics, coverage, integrity. No Dagster."""
