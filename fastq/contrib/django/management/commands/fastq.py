"""``manage.py fastq``: fastq's commands with the settings of the project."""

import argparse
import os
import sys
from typing import Any

from django.conf import ENVIRONMENT_VARIABLE, settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from fastq.contrib.django.discovery import fastq_backends, redis_of

_APP = "fastq.contrib.django.worker:app"


class Command(BaseCommand):
    """The command: it becomes ``fastq-worker`` or ``fastq``, whose main processes do not import the project."""

    help = (
        "Run the tasks of the installed apps: fastq worker [options of fastq-worker]. "
        "Or any command of fastq: fastq queue ls, fastq dash."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Take all arguments unchanged."""
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND ...")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace this process by the command."""
        words = _without_djangos(options["words"])
        if not words:
            raise CommandError("name a command, for example: fastq worker")
        program = ["-m", "fastq", *words]
        if words[0] == "worker":
            program = ["-m", "fastq.cli.worker", _APP, *words[1:]]
        self.stdout.flush()
        os.execve(sys.executable, [sys.executable, *program], _environment(words))


def _without_djangos(words: list[str]) -> list[str]:
    """Return the words without Django's own options, which Django has already applied."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--settings")
    parser.add_argument("--pythonpath")
    return parser.parse_known_args(words)[1]


def _environment(words: list[str]) -> dict[str, str]:
    """Return the environment with the project, its Redis and its queues; variables already set take precedence."""
    backends = fastq_backends()
    found = {name: value for name, value in os.environ.items() if value or not name.startswith("FASTQ_")}
    found[ENVIRONMENT_VARIABLE] = settings.SETTINGS_MODULE
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], found.get("PYTHONPATH")]))
    if (url := redis_of(backends)) is not None:
        found.setdefault("FASTQ_REDIS_URL", url)
    queues = sorted({queue for backend in backends for queue in backend.queues})
    has_file = "FASTQ_CONFIG" in found or any(word.startswith("--config") for word in words)
    if words[0] == "worker" and queues and not has_file:  # a variable would override the file
        found.setdefault("FASTQ_QUEUES", ",".join(queues))
    return found
