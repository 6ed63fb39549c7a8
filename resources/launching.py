"""Run requests for partitions: contiguous ranges, keys that repeat after a failure, nothing that is under way already.

Belongs here: what both locations' schedules and sensors do to launch work. Does not belong here: which partitions
need it.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from resources import history
from resources.attempts import Book, Choice, Work, choose
from resources.partitions import ranges

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
_BOOK = TypeAdapter(Book)


def is_running(instance: dg.DagsterInstance, job: str) -> bool:
    """Whether a run of `job` is queued or running."""
    return bool(instance.get_runs(dg.RunsFilter(job_name=job, statuses=_UNDER_WAY), limit=1))


def is_done_or_running(instance: dg.DagsterInstance, job: str, tags: Mapping[str, str]) -> bool:
    """Whether a run of `job` with these tags succeeded, is queued or running; one that failed is none."""
    statuses = [dg.DagsterRunStatus.SUCCESS, *_UNDER_WAY]
    return bool(instance.get_runs(dg.RunsFilter(job_name=job, tags=dict(tags), statuses=statuses), limit=1))


def under_way(instance: dg.DagsterInstance, job: str, keys: Sequence[str]) -> set[str]:
    """The partitions of `keys` (in Dagster's order) that a run of `job` is working on or queued for."""
    place = {key: index for index, key in enumerate(keys)}
    busy: set[str] = set()
    for run in instance.get_runs(dg.RunsFilter(job_name=job, statuses=_UNDER_WAY)):
        single = run.tags.get("dagster/partition", "")
        first, last = run.tags.get(RANGE_START, single), run.tags.get(RANGE_END, single)
        if first in place and last in place:
            busy.update(keys[place[first] : place[last] + 1])
    return busy


def partition_tags(first: str, last: str) -> dict[str, str]:
    """The tags that make a run one of these partitions; a single one is no range, so that its checks are its own."""
    return {"dagster/partition": first} if first == last else {RANGE_START: first, RANGE_END: last}


def range_requests(
    job: str,
    keys: Sequence[str],
    wanted: Collection[str],
    size: int | None,
    occasion: str,
    tags: Mapping[str, str] | None = None,
    assets: Sequence[dg.AssetKey] | None = None,
    checks: Sequence[dg.AssetCheckKey] | None = None,
) -> list[dg.RunRequest]:
    """One request per contiguous range of `wanted`, `size` partitions at most.

    `occasion` makes the run keys: Dagster remembers a run key for ever, so it names the tick, or the content that
    gave the reason; the same work is then requested again on another occasion.
    """
    return [
        dg.RunRequest(
            run_key=f"{job}/{occasion}/{first}/{last}",
            job_name=job,
            tags={**(tags or {}), **partition_tags(first, last)},
            asset_selection=list(assets) if assets is not None else None,
            asset_check_keys=list(checks) if checks is not None else None,
        )
        for first, last in ranges(keys, wanted, size)
    ]


def night_requests(
    context: dg.ScheduleEvaluationContext,
    job: str,
    keys: Sequence[str],
    work: Iterable[Work],
    most: int,
    size: int,
    attempts: int,
    name: str = "",
) -> tuple[list[dg.RunRequest], Choice]:
    """The requests of one night for `job`, and what was left; the tick's log says so too.

    What was tried is remembered in the instance's database under `name` (default: the job's).
    """
    instance = context.instance
    place = f"night/{name or job}"
    night = context.scheduled_execution_time.astimezone(datetime.UTC).isoformat()
    book = read_book(instance, place)
    busy = under_way(instance, job, keys)
    known = set(keys)
    choice = choose(book, (item for item in work if item.key in known and item.key not in busy), night, most, attempts)
    history.write_value(instance, place, _BOOK.dump_json(book).decode())
    tags = {"night": night}
    if choice.carried_over:
        context.log.info(
            f"{job}: {len(choice.carried_over)} carried over to another night: {_some(choice.carried_over)}"
        )
        tags["carried_over"] = str(len(choice.carried_over))
    if choice.given_up:
        context.log.info(
            f"{job}: {len(choice.given_up)} not tried again, they failed {attempts} times with the same inputs:"
            f" {_some(choice.given_up)}"
        )
        tags["given_up"] = str(len(choice.given_up))
    return range_requests(job, keys, choice.now, size, night, tags), choice


def read_book(instance: dg.DagsterInstance, place: str) -> Book:
    """What earlier nights remembered; empty when nothing usable is there."""
    text = history.read_value(instance, place)
    try:
        return _BOOK.validate_json(text) if text else Book()
    except ValidationError:
        return Book()


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:10]) + (f" and {len(keys) - 10} more" if len(keys) > 10 else "")
