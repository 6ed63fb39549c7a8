"""Names of routes and baselines: the one place that says which are allowed and how a route's spellings become one uid.

Belongs here: grammar. Does not belong here: paths, listing, reading. Whoever builds a path from a name asks here first.

A route of an openpilot-like device is written `<dongle>|<id>`, `<dongle>/<id>` or `<dongle>_<id>`, the dongle being 16
hexadecimal digits and the id either a start time (`2023-07-27--13-01-19`) or a counter with a random part
(`0000003d--3fa0dc2a43`). The last spelling is the canonical one: it is a file name and a partition key as it stands.
"""

from __future__ import annotations

import re

from dms_assets.contract import RouteNameError

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_BASELINE = re.compile(r"[a-z0-9][a-z0-9_]*")
_ID = r"(?:[0-9]{4}(?:-[0-9]{2}){2}--[0-9]{2}(?:-[0-9]{2}){2}|[0-9a-f]{8}--[0-9a-f]{10})"
_OPENPILOT = re.compile(rf"([0-9a-f]{{16}})[|/_]({_ID})")


def is_uid(name: str) -> bool:
    """Whether `name` is safe as a file's stem and as a partition key."""
    return _UID.fullmatch(name) is not None and ".." not in name


def check_uid(name: str) -> str:
    """`name`, when it is a safe uid.

    Raises:
        RouteNameError: it is not.
    """
    if not is_uid(name):
        raise RouteNameError(
            "uid",
            f"{name[:80]!r} can't name a route: letters, digits, '.', '_' and '-', at most 200, "
            "a letter or digit first, no '..'",
        )
    return name


def canonical_uid(name: str) -> str:
    """The uid of a route in any of its spellings; a safe uid of another form is its own.

    Raises:
        RouteNameError: anything else, a segment or a path among them.
    """
    if match := _OPENPILOT.fullmatch(name):
        return f"{match[1]}_{match[2]}"
    return check_uid(name)


def check_baseline(name: str) -> str:
    """`name`, when it is a baseline's name: lower-case letters, digits and `_`, a letter or digit first.

    Raises:
        RouteNameError: it is not.
    """
    if _BASELINE.fullmatch(name) is None:
        raise RouteNameError(
            "baseline", f"{name[:80]!r} can't name a baseline: lower-case letters, digits and '_', no '_' first"
        )
    return name
