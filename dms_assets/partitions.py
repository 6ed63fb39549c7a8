"""The `uid` partitions. Keys are kept in step with the disk and the wanted-spans table by `automation`."""

import dagster as dg

UIDS = dg.DynamicPartitionsDefinition(name="uid")
