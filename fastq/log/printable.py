"""Foreign text made safe to show: on one line, and without anything that a terminal would act on."""


def clean(text: str) -> str:
    """Return text with all characters escaped that a terminal would act on, or could not show."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
