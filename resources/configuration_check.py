"""The check `configuration`: a broken configuration leaves a code location visible, with defaults and this check."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from resources.config import configuration_file


def configuration_check(asset_key: dg.AssetKey, errors: Sequence[Exception]) -> dg.AssetChecksDefinition:
    """A check on `asset_key` that fails with the errors met when the definitions were built."""
    told = [str(error) for error in errors]

    @dg.asset_check(
        asset=asset_key,
        name="configuration",
        description="The configuration was read, and is in force. While it is broken the built-in defaults are.",
    )
    def configuration() -> dg.AssetCheckResult:
        file = configuration_file()
        return dg.AssetCheckResult(
            passed=not told,
            description="; ".join(told) or None,
            metadata={
                "file": str(file) if file else "none: built-in defaults and environment",
                "problems": told,
                "how_to_fix": "mend the file and key that `problems` names, then reload the code location",
            },
        )

    return configuration
