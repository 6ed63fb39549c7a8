"""Which routes have to be judged again, and what is on the disk: identities against a ledger of earlier judgements.

Belongs here: the ledger, the routes whose file, video, rules, thresholds or wanted spans changed since they were
judged, and content digests without reading what is known. Does not belong here: judging (`outcomes`), Dagster, and
where the ledger is kept (`automation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from dms_assets.baselines import Baseline
from dms_assets.contract import CacheInvalidError, CacheUnreadableError
from dms_assets.extraction.video import list_videos
from dms_assets.files import DmsFiles
from dms_assets.outcomes import Standing
from dms_assets.plan import fingerprint


@dataclass(frozen=True, slots=True)
class Entry:
    """One judgement: the fingerprint of all it depended on, and the content digest ("" without a usable cache)."""

    fingerprint: str
    digest: str


@dataclass(slots=True)
class Ledger:
    """The last judgement of each route of one baseline."""

    routes: dict[str, Entry] = field(default_factory=dict)


def entry_of(files: DmsFiles, baseline: Baseline, uid: str, stands: Standing, digest: str) -> Entry:
    """The ledger's entry for a route that was judged as `stands`."""
    file = stands.judged.identity if stands.judged else None
    video = None if baseline.external else stands.video
    return Entry(fingerprint(baseline, file, video, files.wanted().of(uid)), digest)


def pending(files: DmsFiles, baseline: Baseline, keys: Collection[str], ledger: Ledger) -> list[str]:
    """Routes among `keys` whose last judgement no longer holds, sorted. Opens no cache.

    A route without wanted spans and without a file is looked at only if it had one.

    Raises:
        OSError: a root or the wanted-spans table is missing or can't be read: that is no empty answer.
        WantedTableError: the table can't be used.
    """
    stored = files.caches.listing(baseline.name).files
    videos = list_videos(files.videos) if not baseline.external else {}
    wanted = files.wanted()
    found = []
    for uid in sorted({*stored, *wanted.spans, *ledger.routes} & set(keys)):
        video = videos[uid][0] if videos.get(uid) else None
        known = ledger.routes.get(uid)
        if known is None or known.fingerprint != fingerprint(baseline, stored.get(uid), video, wanted.of(uid)):
            found.append(uid)
    return found


def on_disk(
    files: DmsFiles, baseline: Baseline, keys: Collection[str], ledger: Ledger, changed: Iterable[str]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """The content digest of each stored cache among `keys` (None: it can't be used), and why some can't be opened.

    Only the `changed` ones are read; the ledger knows the rest. One that can't be opened is None as well.

    Raises:
        OSError: the root is missing, or the folder can't be read.
    """
    again = set(changed)
    found: dict[str, str | None] = {}
    inaccessible: dict[str, str] = {}
    for uid in files.caches.listing(baseline.name).files:
        if uid not in keys:
            continue
        if uid not in again and uid in ledger.routes:
            found[uid] = ledger.routes[uid].digest or None
            continue
        try:
            found[uid] = files.caches.digest(baseline.name, uid)
        except FileNotFoundError:
            continue  # it vanished since it was listed
        except (CacheInvalidError, CacheUnreadableError):
            found[uid] = None
        except OSError as error:
            found[uid], inaccessible[uid] = None, error.strerror or str(error)
    return found, inaccessible
