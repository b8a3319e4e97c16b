"""Checks the ``FASTQ_…`` variables of the environment, so that an unknown variable is not silently ignored."""

import difflib
import re
from collections.abc import Mapping
from typing import Final

from fastq.cli.connection import CONNECTION_NAMES
from fastq.server.base.settings import EXTRA_KEYS, SETTINGS

PREFIX: Final = "FASTQ_"
_OTHERS: Final = (
    "REDIS_URL",
    "CONFIG",
    "REDIS_SERVER",
    "EMBEDDED_SOCKET",
    "DEMO_LEDGER",
    "OUTBOX_DATABASE",
    "AUDIT_LOG",
)
_OF_WEB: Final = (
    "WEB_HOST", "WEB_HTTP_PORT", "WEB_ROOT_PATH", "WEB_AUTH", "WEB_TRUSTED_PROXY", "WEB_ALLOW_HOST", "WEB_READ_ONLY",
    "WEB_FORBID", "WEB_MAX_PAYLOAD_LENGTH", "WEB_MAX_RESULT_LENGTH", "WEB_PROMETHEUS_ADDR", "WEB_LOG_FORMAT",
    "WEB_ENABLE_METRICS_EXPORTER", "WEB_QUEUE", "WEB_HIDE_PAYLOADS", "WEB_REDACT", "WEB_ALSO", "WEB_LINK", "WEB_APP",
)  # fmt: skip
_FOR_BUILDS: Final = ("SKIP_EXTENSIONS", "DEBUG", "SANITIZE", "REQUIRE_INTEROP", "REQUIRE_POSTGRES")
KNOWN_VARIABLES: Final = frozenset(
    PREFIX + name.upper() for name in (*SETTINGS, *EXTRA_KEYS, *CONNECTION_NAMES, *_OTHERS, *_OF_WEB, *_FOR_BUILDS)
)
_LIKENESS: Final = 0.85

# Kubernetes sets these for each service: FASTQ_WEB_SERVICE_HOST, FASTQ_WEB_PORT=tcp://…, FASTQ_WEB_PORT_80_TCP_ADDR.
_OF_A_SERVICE: Final = re.compile(r".*_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")


def check_environment(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each ``FASTQ_…`` variable that no command reads.

    ``ValueError`` names a variable that looks like a misspelled setting. Variables that Kubernetes sets are ignored.
    """
    warnings = []
    for variable, value in environment.items():
        if not variable.startswith(PREFIX) or variable in KNOWN_VARIABLES or _is_of_a_service(variable, value):
            continue
        if (meant := _closest(variable)) and meant not in environment:
            raise ValueError(f"${variable} is not a setting; did you mean ${meant}?")
        warnings.append(f"${variable} is not a setting of fastq and is ignored")
    return warnings


def _is_of_a_service(variable: str, value: str) -> bool:
    return bool(_OF_A_SERVICE.fullmatch(variable)) or (variable.endswith("_PORT") and "://" in value)


def _closest(variable: str) -> str | None:
    # Compare without the prefix, which would make any two names similar.
    names = sorted(known.removeprefix(PREFIX) for known in KNOWN_VARIABLES)
    close = difflib.get_close_matches(variable.removeprefix(PREFIX).upper(), names, 1, _LIKENESS)
    return PREFIX + close[0] if close else None
