"""A function that gives the credentials for Redis; only children import it."""


def current() -> tuple[str, str]:
    return "some", "word"


def broken() -> tuple[str, str]:
    raise OSError("no token today")
