"""What PyPI makes of the metadata, and where its links lead."""

import re
from collections.abc import Iterator
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path

from readme_renderer import markdown


class _Links(HTMLParser):
    """The targets of the links and pictures of a page, and the places in it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {"a": "href", "img": "src"}.get(tag)
        self.found += [value for name, value in attrs if name == wanted and value]
        self.places |= {f"#{value}" for name, value in attrs if name == "id"}


def rendered(metadata: Message) -> str:
    """Return the page that PyPI shows; raise ``ValueError`` where it would show plain text."""
    page = markdown.render(str(metadata.get_payload()))
    if page is None:
        raise ValueError("PyPI cannot render README.md")
    return page


def links(metadata: Message) -> list[str]:
    """Return the links of the metadata and of the page, but those to a place in the page itself."""
    page = _Links()
    page.feed(rendered(metadata))
    named = [str(url).partition(", ")[2] for url in metadata.get_all("Project-URL", [])]
    return [*named, *(link for link in page.found if link not in page.places)]


def astray(found: list[str], repository: str, tag: str, tree: Path) -> Iterator[str]:
    """Yield what is wrong with links: each is a whole address, and one into the repository names a file of the tree."""
    own = re.compile(rf"{re.escape(repository)}/(?:blob|raw)/{re.escape(tag)}/([^#]+)(?:#.*)?")
    for link in found:
        if not link.startswith("https://"):
            yield f"{link}: leads nowhere on PyPI"
        elif (path := own.fullmatch(link)) and not (tree / path[1]).exists():
            yield f"{link}: there is no {path[1]}"
