"""Tests: `unit` (the domain, no Dagster), `dagster` (real ephemeral instances), `e2e` (live processes, a browser)."""
