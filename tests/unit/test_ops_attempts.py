"""The night's choice, ranges of keys, and the comparison of belief and disk."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from resources.attempts import Book, Work, choose
from resources.belief import compare
from resources.partitions import ranges


def work(*keys: str, fingerprint: str = "f") -> list[Work]:
    return [Work(key, fingerprint) for key in keys]


def test_the_longest_waiting_come_first_and_the_rest_is_carried_over() -> None:
    book = Book()
    first = choose(book, work("b", "d"), "2026-03-01", 1, 3)
    assert (first.now, first.carried_over) == (("b",), ("d",))
    second = choose(book, work("a", "c", "d"), "2026-03-02", 2, 3)
    assert (second.now, second.carried_over) == (("a", "d"), ("c",))


def test_a_failing_partition_is_left_after_its_attempts_until_its_inputs_change() -> None:
    book = Book()
    nights = [choose(book, work("a"), f"2026-03-{day:02}", 5, 3) for day in range(1, 7)]
    assert [night.now for night in nights] == [("a",)] * 3 + [()] * 3
    assert nights[3].given_up == ("a",)
    assert choose(book, work("a", fingerprint="g"), "2026-03-07", 5, 3).now == ("a",)


def test_a_partition_that_succeeded_is_forgotten_and_starts_anew() -> None:
    book = Book()
    for night in ("1", "2"):
        choose(book, work("a"), night, 5, 3)
    choose(book, work(), "3", 5, 3)
    assert book.tried == {}
    assert [choose(book, work("a"), night, 5, 3).now for night in "4567"] == [("a",)] * 3 + [()]


def test_a_night_that_is_evaluated_again_makes_the_same_choice_and_counts_once() -> None:
    book = Book()
    for night in ("1", "2", "3"):
        choices = {choose(book, work("a", "b"), night, 1, 3) for _ in range(3)}  # its tick was killed twice
        assert [choice.now for choice in choices] == [("a",)]
    assert choose(book, work("a", "b"), "4", 1, 3).now == ("b",)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 70)), st.one_of(st.none(), st.integers(1, 9)))
def test_ranges_hold_the_wanted_keys_and_no_other(known: set[int], wanted: set[int], size: int | None) -> None:
    keys = [f"{number:02}" for number in sorted(known)]
    chosen = {f"{number:02}" for number in wanted}
    found = [keys[keys.index(first) : keys.index(last) + 1] for first, last in ranges(keys, chosen, size)]
    assert [key for run in found for key in run] == [key for key in keys if key in chosen]
    assert all(len(run) <= (size or 100) for run in found)
    if size is None:
        assert all(keys.index(a[-1]) + 1 < keys.index(b[0]) for a, b in itertools.pairwise(found))


def test_belief_and_disk_are_compared_both_ways() -> None:
    belief = compare({"a": "1", "b": "1", "c": "1", "e": "1"}, {"b": "1", "c": "2", "d": "9", "e": None, "f": None})
    assert (belief.vanished, belief.unrecorded, belief.changed) == (("a",), ("d",), ("c",))
    assert belief.partitions == ["a", "c", "d"]
    assert [(f.code, f.count, f.samples) for f in belief.findings("cache", "root")] == [
        ("vanished", 1, ("a",)),
        ("unrecorded", 1, ("d",)),
        ("changed", 1, ("c",)),
    ]
    assert [f.text for f in belief.findings("cache", "root")][:1] == [
        "1 caches are recorded and no longer on the disk: a"
    ]
    same = compare({"a": "1"}, {"a": "1"})
    assert same.findings("cache", "root") == []
    assert same.digest != belief.digest


def test_what_cannot_be_opened_is_told_with_its_reason_and_is_neither_vanished_nor_changed() -> None:
    belief = compare({"a": "1"}, {"a": None, "b": None}, {"b": "Input/output error", "a": "Permission denied"})
    assert (belief.vanished, belief.unrecorded, belief.changed) == ((), (), ())
    assert belief.partitions == ["a", "b"]
    (finding,) = belief.findings("cache", "root")
    assert (finding.code, finding.count) == ("inaccessible", 2)
    assert finding.text.endswith("left as they are: a: Permission denied, b: Input/output error")
    assert belief.digest != compare({"a": "1"}, {"a": None}).digest
