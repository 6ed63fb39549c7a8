"""Assets, checks, partitions and automation on real ephemeral instances."""
