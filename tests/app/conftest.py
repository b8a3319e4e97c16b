"""An app on the private Redis."""

from collections.abc import Iterator

import pytest

from fastq import App


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = App(url)
    yield app
    app.close()
