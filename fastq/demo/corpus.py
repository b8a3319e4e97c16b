"""The data set: generated text in which each word depends on the previous one, as in a language."""

import random
from typing import Final

_SYLLABLES: Final = [consonant + vowel for consonant in "bdfghklmnprstvz" for vowel in ("a", "e", "i", "o", "ai", "en")]
_WORDS: Final = 2_000
_FOLLOWERS: Final = 12
_LENGTH: Final = 300_000
_SHORTEST: Final = 400
_LONGEST: Final = 1_600


class Corpus:
    """About 2 MB of text; the same seed makes the same text."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        words = ["".join(rng.choices(_SYLLABLES, k=rng.choice((1, 2, 2, 3)))) for _ in range(_WORDS)]
        followers = {word: rng.choices(words, k=_FOLLOWERS) for word in words}
        word = words[0]
        text = []
        for _ in range(_LENGTH):
            # The product favors the first followers, so that some pairs are common and compression has work to do.
            word = followers[word][int(rng.random() * rng.random() * _FOLLOWERS)]
            text.append(word)
        self._text = " ".join(text).encode()

    def cut(self, rng: random.Random) -> bytes:
        """Return a piece of 400 to 1600 bytes from anywhere."""
        start = rng.randrange(len(self._text) - _LONGEST)
        return self._text[start : start + rng.randint(_SHORTEST, _LONGEST)]
