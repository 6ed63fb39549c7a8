"""The code location for VIN offline stores: statistics, raw coverage, integrity."""
