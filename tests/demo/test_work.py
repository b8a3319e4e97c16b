"""What the handlers compute."""

from fastq.demo.work import WORK, features, fingerprint, squeeze

TEXT = b"one two three two three two"


def test_each_work_type_has_its_handler() -> None:
    assert {"text:fingerprint": fingerprint, "text:squeeze": squeeze, "text:features": features} == WORK


def test_features_are_counts_of_words() -> None:
    assert features(TEXT) == {"words": 6, "distinct": 3, "most_common": [("two", 3), ("three", 2), ("one", 1)]}


def test_near_duplicates_share_the_smaller_hash_alone() -> None:
    one, two = fingerprint(TEXT * 9), fingerprint(TEXT * 9 + b"!")
    assert one["blake2b"] != two["blake2b"]
    assert one["minhash"] == two["minhash"]
    assert fingerprint(b"short")["minhash"] != one["minhash"]


def test_squeezing_tells_both_sizes() -> None:
    found = squeeze(TEXT * 50)
    assert found["bytes"] == len(TEXT) * 50
    assert found["packed"] < 100
    assert found["intact"] is True
