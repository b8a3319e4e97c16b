"""What a child says of an error that its runner could not describe."""

import traceback


def last_words(error: BaseException) -> bytes:
    """Return the traceback of an error, or only its class if the user's code keeps Python from making one."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # noqa: BLE001 - SystemExit included: the child and its other tasks must go on
        text = f"{type(error).__qualname__}, which has no traceback that can be shown"
    return text.encode("utf-8", "replace")
