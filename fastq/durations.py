from datetime import timedelta


def nanoseconds_of(value, *, name):
    return int((value.total_seconds() if isinstance(value, timedelta) else value) * 1e9)
