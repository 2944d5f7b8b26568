"""The page for firewalls names each host that a build asks by itself."""

import urllib.parse

import pytest

from graphcrate.compat.facts.addresses import PYTORCH_FILES
from graphcrate.model.recipe import CHANNELS
from graphcrate.resolve.sources import crates, hosts, pyg_lib, wheel_mirrors
from tests import ROOT

PAGE = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
ADDRESSES = [
    *(row.root for row in CHANNELS.values() if row.root),
    *(address for mirror in wheel_mirrors.MIRRORS.values() for address in (mirror.pytorch, mirror.pypi) if address),
    f"https://{PYTORCH_FILES}",
    crates.CRATES_IO,
    crates.RSPROXY,
    pyg_lib.GITHUB,
]


@pytest.mark.parametrize("host", sorted({urllib.parse.urlsplit(address).hostname for address in ADDRESSES}))
def test_host_is_on_the_page(host):
    assert f"`{host}`" in PAGE


def test_table_of_the_page_is_that_of_the_doctor():
    rows = [line.strip("| ").split(" | ") for line in PAGE.replace("`", "").splitlines() if line.startswith("| ")]
    assert rows[1:] == [[row.title, row.gives, row.without] for row in hosts.ROWS]
