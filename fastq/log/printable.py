"""Text that others made, as it may be shown: on one line, and with nothing that a terminal would act on."""

__all__ = ["clean"]


def clean(text: str) -> str:
    """Return text in which what a terminal would act on, or could not show, is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
