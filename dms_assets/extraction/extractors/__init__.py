"""One file per extractor. The registry of baselines is `dms_assets.baselines`."""
