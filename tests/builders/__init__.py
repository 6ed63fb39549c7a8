"""Healthy stores, caches and videos, and one corruptor per rule: `vin`, `dms` and `video`."""
