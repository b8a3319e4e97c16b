"""PyPI shows README.md as a page, and all of its links lead somewhere."""

from email.message import Message
from pathlib import Path
from types import ModuleType

from tests.release.page import astray, links

ROOT = Path(__file__).parents[2]
ADDRESS = "https://github.example/the/fastq"


def test_every_link_of_readme_leads_somewhere_on_pypi(setup: ModuleType) -> None:
    metadata = Message()
    for name, url in setup.urls(ADDRESS, "v1").items():
        metadata["Project-URL"] = f"{name}, {url}"
    metadata.set_payload(setup.page((ROOT / "README.md").read_text("utf-8"), ADDRESS, "v1"))
    found = links(metadata)
    assert f"{ADDRESS}/raw/v1/benchmarks/compared.png" in found
    assert list(astray(found, ADDRESS, "v1", ROOT)) == []


def test_a_link_that_leads_nowhere_is_told() -> None:
    metadata = Message()
    metadata.set_payload(f"# Top\n[a](docs/x.md) [b]({ADDRESS}/blob/v1/no.md#x) [c](https://x.example) [d](#gone)")
    assert list(astray(links(metadata), ADDRESS, "v1", ROOT)) == [
        "docs/x.md: leads nowhere on PyPI",
        f"{ADDRESS}/blob/v1/no.md#x: there is no no.md",
        "#user-content-gone: leads nowhere on PyPI",
    ]
