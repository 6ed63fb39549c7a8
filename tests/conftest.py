"""What holds for every test, and what tests of several folders need."""

import sys
from collections.abc import Iterator

import pytest

from resources.command_line import heed_interrupts
from tests.builders import third_party

heed_interrupts()  # tests started in the background too: Dagster's runs end the processes that they start


@pytest.fixture(scope="module")
def third_party_extractors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A third party's package of extractors is installed for this module."""
    folder = str(third_party.install(tmp_path_factory.mktemp("site")))
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)
    sys.modules.pop("numbers_extractors", None)
