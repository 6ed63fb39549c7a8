"""The `store` partitions. Keys are kept in step with the disk by `automation`; none is added or removed here."""

import dagster as dg

STORES = dg.DynamicPartitionsDefinition(name="store")
