"""Foreign text made safe to show: on one line, and without characters on which a terminal would act."""


def clean(text: str) -> str:
    """Return text with all characters escaped on which a terminal would act, or that it could not show."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
