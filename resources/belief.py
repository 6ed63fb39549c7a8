"""Does Dagster believe what the disk holds? The comparison, both ways. Pure; no Dagster, no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from resources.findings import MAX_SAMPLES, Finding, Severity


@dataclass(frozen=True, slots=True)
class Belief:
    """Partitions on which the two differ, each sorted: recorded but gone, there but not recorded, other content."""

    vanished: tuple[str, ...]
    unrecorded: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def partitions(self) -> list[str]:
        """All of them, sorted."""
        return sorted({*self.vanished, *self.unrecorded, *self.changed})

    @property
    def digest(self) -> str:
        """Equal for equal differences, so that an unchanged answer is no news."""
        return hashlib.sha256(json.dumps([self.vanished, self.unrecorded, self.changed]).encode()).hexdigest()[:16]

    def findings(self, what: str, where: str) -> list[Finding]:
        """One finding per kind of difference. `what` names a thing (a store, a cache), `where` their root."""
        told = (
            (
                "vanished",
                self.vanished,
                "are recorded and no longer on the disk",
                f"put the {what} back, or retire its partition",
            ),
            (
                "unrecorded",
                self.unrecorded,
                "are on the disk and not recorded",
                "run the reconciliation job, which adopts them",
            ),
            ("changed", self.changed, "hold something else than recorded", "run the reconciliation job"),
        )
        return [
            Finding(code, Severity.ERROR, where, f"{len(keys)} {what}s {text}", fix, len(keys), keys[:MAX_SAMPLES])
            for code, keys, text, fix in told
            if keys
        ]


def compare(recorded: Mapping[str, str], disk: Mapping[str, str | None]) -> Belief:
    """Compare data versions by partition. None on the disk: it is there, and can't be used or adopted right now."""
    return Belief(
        vanished=tuple(sorted(set(recorded) - set(disk))),
        unrecorded=tuple(sorted(key for key, version in disk.items() if version is not None and key not in recorded)),
        changed=tuple(
            sorted(
                key for key, version in disk.items() if version is not None and recorded.get(key, version) != version
            )
        ),
    )
