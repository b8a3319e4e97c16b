"""The page of the settings tells how the process is set up, to those who may know it, and no password."""

from starlette.requests import Request

from fastq.web import FastqWeb, User
from tests.web.serving import serving
from tests.web.test_pages import text_of


def by_header(request: Request) -> User:
    """Let a header say who asks."""
    return User.of("ann", request.headers["x-rights"])


def test_settings_are_shown_to_admins_without_passwords(url: str) -> None:
    app = FastqWeb(
        url,
        auth=by_header,
        forbidden=["queue.delete"],
        redact=["Token"],
        prometheus="http://me:secret@prometheus.example:9090/x?key=secret",
        links={"Logs": "https://logs.example/{id}"},
        also={"staging": "redis://:secret@127.0.0.1:1/0"},
    )
    with serving(app) as served:
        admin = served.get("/settings", x_rights="admin")
        text = text_of(admin)
        for part in (
            "Login a function of the app",
            "Forbidden queue.delete",
            "Redacted token",
            "Links Logs",
            "Prometheus http://prometheus.example:9090/x",
            "Name ann Role admin Queues *",
        ):
            assert part in text
        assert "queue.delete" not in text.partition("May")[2]
        assert "Redis staging 127.0.0.1:1" in text_of(served.get("/@staging/settings", x_rights="admin"))
        assert "secret" not in admin.text + served.get("/@staging/settings", x_rights="admin").text
        assert 'href="/settings"' in served.get("/", x_rights="viewer").text
        for rights in ("operator", "admin@mail*"):
            text = text_of(served.get("/settings", x_rights=rights))
            assert "prometheus.example" not in text
            assert "Admins who see all queues see more here." in text
