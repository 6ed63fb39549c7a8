"""The reference pages say what the code says, whatever changes in the code."""

import pytest

from dms_assets.contract import FAIL_CODES
from dms_assets.figures import FAIL_COLOURS, STATE_COLOURS
from dms_assets.plan import State
from dms_assets.validation import RULES
from docs import generate


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_reference_page_is_what_the_code_says_now(name: str) -> None:
    written = (generate.HERE / name).read_text(encoding="utf-8")
    assert written == generate.PAGES[name](), f"docs/{name} is out of date; run `make docs`"


def test_every_setting_has_a_description_and_a_readable_type() -> None:
    rows = [line for line in generate.configuration().splitlines() if line.startswith("| `")]
    assert len(rows) > 30
    assert [row for row in rows if "|  |" in row] == []
    assert [row for row in rows if "<" in row or "typing" in row] == []


def test_every_rule_of_a_cache_says_when_it_holds_and_what_to_do() -> None:
    rows = [line for line in generate.cache_rules().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [rule.code for rule in RULES]
    assert all(len(cell.strip()) > 8 for row in rows for cell in (row.split(" | ")[1], row.split(" | ")[-1]))


def test_every_failure_code_has_a_colour() -> None:
    assert list(FAIL_COLOURS) == [*(name for code, name in FAIL_CODES.items() if code), "invalid_windows"]


def test_every_state_of_a_plan_has_a_colour() -> None:
    assert set(STATE_COLOURS) == set(State)
