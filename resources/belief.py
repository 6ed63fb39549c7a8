"""Does Dagster believe what the disk holds? The comparison, both ways. Pure; no Dagster, no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from resources.findings import MAX_SAMPLES, Finding, Severity

_NAMED = 5  # partitions named in a finding's text; its samples hold more


@dataclass(frozen=True, slots=True)
class Belief:
    """Partitions on which the two differ, each sorted: recorded but gone, there but not recorded, other content.

    `inaccessible` are those of which it can't be told, each with why it can't be opened.
    """

    vanished: tuple[str, ...]
    unrecorded: tuple[str, ...]
    changed: tuple[str, ...]
    inaccessible: Mapping[str, str] = field(default_factory=dict)

    @property
    def partitions(self) -> list[str]:
        """All of them, sorted."""
        return sorted({*self.vanished, *self.unrecorded, *self.changed, *self.inaccessible})

    @property
    def digest(self) -> str:
        """Equal for equal differences, so that an unchanged answer is no news."""
        return hashlib.sha256(
            json.dumps([self.vanished, self.unrecorded, self.changed, self.inaccessible], sort_keys=True).encode()
        ).hexdigest()[:16]

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
            (
                "inaccessible",
                tuple(f"{key}: {why}" for key, why in self.inaccessible.items()),
                "can't be opened and were left as they are",
                f"give the user of the pipeline read access to each {what}, or repair the disk; it is looked at again"
                " every time",
            ),
        )
        return [
            Finding(
                code,
                Severity.ERROR,
                where,
                f"{len(keys)} {what}s {text}: {', '.join(keys[:_NAMED])}" + (" ..." if len(keys) > _NAMED else ""),
                fix,
                len(keys),
                keys[:MAX_SAMPLES],
            )
            for code, keys, text, fix in told
            if keys
        ]


def compare(
    recorded: Mapping[str, str], disk: Mapping[str, str | None], inaccessible: Mapping[str, str] | None = None
) -> Belief:
    """Compare data versions by partition. None on the disk: it is there, and can't be used or adopted right now.

    `inaccessible` are those on the disk that can't be opened, each with the reason.
    """
    return Belief(
        vanished=tuple(sorted(set(recorded) - set(disk))),
        unrecorded=tuple(sorted(key for key, version in disk.items() if version is not None and key not in recorded)),
        changed=tuple(
            sorted(
                key for key, version in disk.items() if version is not None and recorded.get(key, version) != version
            )
        ),
        inaccessible=dict(sorted((inaccessible or {}).items())),
    )
