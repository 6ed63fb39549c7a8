"""What of a judgement Dagster does not know yet: events are written for news only, whatever was looked at.

Belongs here: the comparison of what happened with the latest answers. Does not belong here: judging (`outcomes`), and
which routes are looked at (`reconcile`).
"""

from collections.abc import Iterable, Iterator

import dagster as dg

from dms_assets import outcomes, store_outcomes
from dms_assets.baselines import Baseline
from dms_assets.checks import DESCRIPTIONS
from resources import history
from resources.events import Checked, Happened, Materialised
from resources.history import CheckState, Outcome

ABSENT = "absent"  # the data version of a route of which nothing is wanted and nothing stored


def news(
    instance: dg.DagsterInstance,
    happened: Iterable[Happened],
    version: str | None,
    states: dict[tuple[str, str | None], CheckState],
) -> Iterator[Happened]:
    """What of `happened` Dagster does not know yet.

    A route of which a check says something new is materialised anew as well, so that its page tells how it stands.

    Args:
        instance: where the earlier answers are.
        happened: a route's materialisation, if any, and its checks.
        version: the data version recorded last, None for none.
        states: the latest row by check name and partition.
    """
    made: list[Materialised] = []
    checks: list[Checked] = []
    for item in happened:
        if isinstance(item, Checked):
            checks.append(item)
        elif item.data_version != ABSENT or version in (None, ABSENT):
            made.append(item)  # else a recorded cache is gone: no new state to record, but a belief that is wrong
    told = [item for item in checks if not _is_known(instance, item, version, states)]
    if made and (told or made[0].data_version != version):
        yield from made
        yield from checks
    else:
        yield from told


def without_empty_passes(
    happened: Iterable[Happened], states: dict[tuple[str, str | None], CheckState]
) -> list[Happened]:
    """What happened to a route that has no cache, less what passes for want of one and never had an answer.

    A span that is added for a thousand routes is one answer of each (it is not stored), not five.
    """
    return [
        item
        for item in happened
        if not (isinstance(item, Checked) and item.passed and (item.check_name, item.partition) not in states)
    ]


def _is_known(
    instance: dg.DagsterInstance,
    item: Checked,
    version: str | None,
    states: dict[tuple[str, str | None], CheckState],
) -> bool:
    """Whether the latest answer of this check is the same, and about what is recorded."""
    state = states.get((item.check_name, item.partition))
    passed = Outcome.PASSED if item.passed else Outcome.FAILED
    if state is None or state.outcome is not passed or not (state.current or version is None):
        return False
    (answer,) = history.evaluations(instance, dg.AssetCheckKey(item.asset_key, item.check_name), item.partition)
    return (answer.description, answer.severity) == (item.description or "", item.severity.value)


def known_answers(
    instance: dg.DagsterInstance, baseline: Baseline, whole: str
) -> dict[tuple[str, str | None], CheckState]:
    """The latest row of every check of a baseline's routes, and of the check named `whole` of its coverage."""
    key = outcomes.cache_key(baseline.name)
    keys = [
        *(dg.AssetCheckKey(key, name) for name in DESCRIPTIONS),
        dg.AssetCheckKey(store_outcomes.coverage_key(baseline.name), whole),
    ]
    found = history.check_states(instance, keys)
    return {(state.check, state.partition): state for state in found}
