"""How asynq's tools show bytes to people."""


def shown_bytes(data: bytes) -> str:
    """Return how a payload or result is shown: only if all of it can be printed, and not all of it is blank."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "non-printable bytes"
    return text if text.isprintable() and not text.isspace() and text else "non-printable bytes"
