"""From driver video to feature rows: exact frames, driver boxes, extractors, resumable runs. No Dagster."""
