"""The code location for DMS feature caches: validation, coverage of wanted spans, extraction, adoption."""
