"""What a rule says of a store or a cache. Plain data, shared by both domains; no rule lives here, and no Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_SAMPLES = 20


class Severity(StrEnum):
    """How bad a finding is: an ERROR makes results wrong or missing, a WARN makes them worth a look."""

    ERROR = "ERROR"
    WARN = "WARN"


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule in one place.

    `code` names the rule, `where` the file and the place in it (relative to its root), `text` says what is wrong in
    numbers, `how_to_fix` what to do. `count` is the exact number of offending things (rows, samples, files) and
    `samples` names the first of them, `MAX_SAMPLES` at most.
    """

    code: str
    severity: Severity
    where: str
    text: str
    how_to_fix: str
    count: int = 1
    samples: tuple[str, ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether there are more offending things than `samples` names."""
        return self.count > len(self.samples)
