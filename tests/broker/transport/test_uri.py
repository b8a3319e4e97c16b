import json
from pathlib import Path
from typing import Any

import pytest

from fastq.broker.transport.uri import Address, ConnectionKind, ConnectionSpec, TLSFiles, mask_password, parse_redis_uri

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "uri.json").read_text())["cases"]

# Row "redis URIs": asynq refuses these, and here they have a meaning.
READ_HERE_ONLY = {
    "redis://localhost:6379/": ConnectionSpec(ConnectionKind.TCP, (Address("localhost", 6379),)),
    "unix:///run/x.sock": ConnectionSpec(ConnectionKind.UNIX, path="/run/x.sock"),
    "redis-cluster://a:1,b:2": ConnectionSpec(ConnectionKind.CLUSTER, (Address("a", 1), Address("b", 2))),
}
# asynq reads these and fails at its first command; here the error comes at once.
REFUSED_HERE = {
    "redis://localhost:70000": "from 1 to 65535, not 70000",
    "redis-sentinel://localhost:5000": "add [?]master=NAME",
}
# asynq leaves the user name out, and the port where none is written.
USERS = {"redis://user:secret@localhost:6379/1": "user", "redis://user@localhost:6379": "user"}
ADDRESSES = {"": "localhost:6379", ":6379": "localhost:6379", "[::1]": "[::1]:6379", "example.com": "example.com:6379"}


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: repr(case["uri"]))
def test_uris_mean_what_they_mean_to_asynq(case: dict[str, Any]) -> None:
    uri = case["uri"]
    if uri in REFUSED_HERE:
        assert case["error"] is None
        with pytest.raises(ValueError, match=REFUSED_HERE[uri]):
            parse_redis_uri(uri)
    elif uri in READ_HERE_ONLY:
        assert case["error"] is not None
        assert parse_redis_uri(uri) == READ_HERE_ONLY[uri]
    elif case["error"] is not None:
        with pytest.raises(ValueError, match="bad Redis URI"):
            parse_redis_uri(uri)
    elif case["kind"] == "sentinel":
        assert parse_redis_uri(uri) == _sentinel_spec(case)
    else:
        assert parse_redis_uri(uri) == _client_spec(case)


def test_every_difference_from_asynq_is_one_of_its_cases() -> None:
    assert READ_HERE_ONLY.keys() | REFUSED_HERE.keys() | USERS.keys() <= {case["uri"] for case in GOLDEN}


def _client_spec(case: dict[str, Any]) -> ConnectionSpec:
    common: dict[str, Any] = {
        "db": case["db"],
        "password": case["password"],
        "username": USERS.get(case["uri"], case["username"]),
    }
    if case["network"] == "unix":
        return ConnectionSpec(ConnectionKind.UNIX, path=case["addr"], **common)
    addresses = (_address(ADDRESSES.get(case["addr"], case["addr"])),)
    if "tls_server_name" in case:
        assert addresses[0].host == case["tls_server_name"]
        common["tls"] = TLSFiles()
    return ConnectionSpec(ConnectionKind.TCP, addresses, **common)


def _sentinel_spec(case: dict[str, Any]) -> ConnectionSpec:
    return ConnectionSpec(
        ConnectionKind.SENTINEL,
        tuple(_address(text) for text in case["sentinel_addrs"]),
        db=case["db"],
        password=case["password"],
        master_name=case["master_name"],
        sentinel_password=case["sentinel_password"],
    )


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host.strip("[]"), int(port))


@pytest.mark.parametrize(
    ("uri", "spec"),
    [
        ("redis://example.com", ConnectionSpec(ConnectionKind.TCP, (Address("example.com", 6379),))),
        ("redis://example.com:", ConnectionSpec(ConnectionKind.TCP, (Address("example.com", 6379),))),
        ("REDIS://h:1/+2#note", ConnectionSpec(ConnectionKind.TCP, (Address("h", 1),), db=2)),
        ("redis://[fe80::1%25eth0]:1", ConnectionSpec(ConnectionKind.TCP, (Address("fe80::1%eth0", 1),))),
        (
            "redis://%C3%A9:a%2Fb%40%23@h",
            ConnectionSpec(ConnectionKind.TCP, (Address("h", 6379),), username="\u00e9", password="a/b@#"),
        ),
        (
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_certfile=/c.pem&ssl_keyfile=/k.pem",
            ConnectionSpec(ConnectionKind.TCP, (Address("h", 6379),), tls=TLSFiles("/ca.pem", "/c.pem", "/k.pem")),
        ),
        (
            "rediss://h?ssl_certfile=/c&ssl_password=p%26&ssl_min_version=TLSv1.3&ssl_server_name=n&ssl_cert_reqs=none",
            ConnectionSpec(
                ConnectionKind.TCP,
                (Address("h", 6379),),
                tls=TLSFiles(None, "/c", None, "p&", "none", "TLSv1.3", "n"),
            ),
        ),
        (
            "redis://h?read_timeout=0.5",
            ConnectionSpec(ConnectionKind.TCP, (Address("h", 6379),), read_timeout_s=0.5),
        ),
        (
            "redis://u@h?credentials=a.b:c",
            ConnectionSpec(ConnectionKind.TCP, (Address("h", 6379),), username="u", credentials="a.b:c"),
        ),
        (
            "redis-sentinel://:sp@h?master=m&credentials=./file",
            ConnectionSpec(
                ConnectionKind.SENTINEL,
                (Address("h", 26379),),
                master_name="m",
                sentinel_password="sp",
                credentials="./file",
            ),
        ),
        (
            "unix://u:p@/a%20b.sock?db=2",
            ConnectionSpec(ConnectionKind.UNIX, path="/a b.sock", db=2, username="u", password="p"),
        ),
        (
            "unix:///s?username=u&password=p%40q&db=1&db=2",
            ConnectionSpec(ConnectionKind.UNIX, path="/s", db=1, username="u", password="p@q"),
        ),
        (
            "redis-sentinel://su:sp@a,b:1/3?master=m&username=u&password=p",
            ConnectionSpec(
                ConnectionKind.SENTINEL,
                (Address("a", 26379), Address("b", 1)),
                db=3,
                username="u",
                password="p",
                master_name="m",
                sentinel_username="su",
                sentinel_password="sp",
            ),
        ),
        (
            "rediss-sentinel://:sp@a?master=m&ssl_ca_certs=/ca.pem",
            ConnectionSpec(
                ConnectionKind.SENTINEL,
                addresses=(Address("a", 26379),),
                master_name="m",
                sentinel_password="sp",
                tls=TLSFiles("/ca.pem"),
            ),
        ),
        (
            "rediss-cluster://u:p@a,[::1]:7/0?ssl_ca_certs=/ca.pem",
            ConnectionSpec(
                ConnectionKind.CLUSTER,
                (Address("a", 6379), Address("::1", 7)),
                username="u",
                password="p",
                tls=TLSFiles("/ca.pem"),
            ),
        ),
        ("embedded://", ConnectionSpec(ConnectionKind.EMBEDDED)),
        ("embedded:///a/data%20dir?db=3", ConnectionSpec(ConnectionKind.EMBEDDED, path="/a/data dir", db=3)),
    ],
)
def test_uris_that_asynq_has_no_word_for_are_read(uri: str, spec: ConnectionSpec) -> None:
    assert parse_redis_uri(uri) == spec


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("localhost:6379", "redis://localhost:6379"),
        ("127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
        ("", "redis://host:port"),
        ("http://h", "scheme 'http' is none of redis, rediss, redis-socket"),
        ("redis://h/x", "number of a database, not 'x'"),
        ("redis://h/1_0", "number of a database"),
        ("redis://h:0", "from 1 to 65535"),
        ("redis://::1:6379", r"brackets: \[::1\]:6379"),
        ("redis://a:1,b:2", "redis-cluster:// or redis-sentinel://"),
        ("redis://:a/b@h", "percent-encoded"),
        ("redis://u:a#b@h", "as %23"),
        ("redis://:1/b@h", "as %2F"),
        ("redis://:5%@h", "write it as %25"),
        ("redis://:%ff@h", "password is not UTF-8"),
        ("unix:///s?password=%ff", "parameter is not UTF-8"),
        ("redis://a b", "contains a space"),
        ("redis://h\n", "control character"),
        ("redis://h?ssl_ca_certs=/ca", "write rediss in place of redis"),
        ("redis-sentinel://h?master=m&ssl_ca_certs=/ca", "ssl_ca_certs needs TLS; write rediss in place of redis"),
        ("rediss-sentinel://h", "add [?]master=NAME"),
        ("rediss://h?ssl_ca_cert=/ca", "ssl_ca_cert is none of ssl_ca_certs, "),
        ("rediss://h?ssl_min_version=TLSv1", "ssl_min_version must be TLSv1.2 or TLSv1.3, not 'TLSv1'"),
        ("rediss://h?ssl_keyfile=/k", "ssl_keyfile needs ssl_certfile"),
        ("redis://h?credentials=password", "must be module:function or the path of a file, not 'password'"),
        ("redis://h?credentials=m:f()", "must be module:function or the path of a file"),
        ("redis://:p@h?credentials=m:f", "credentials go neither with a password nor "),
        ("embedded://?credentials=m:f", "nor with an embedded server"),
        ("redis://h?read_timeout=0", "read_timeout must be more than 0 and at most 15 s, not '0'"),
        ("redis://h?read_timeout=15.1", "read_timeout must be more than 0 and at most 15 s, not '15.1'"),
        ("redis-cluster://h?read_timeout=nan", "read_timeout must be more than 0 and at most 15 s, not 'nan'"),
        ("redis-sentinel://h?master=m&read_timeout=", "read_timeout must be more than 0 and at most 15 s, not ''"),
        ("redis-cluster://h/1", "database 0 only"),
        ("redis-cluster://", "names no host"),
        ("redis-sentinel://?master=m", "names no host"),
        ("redis-socket://h", "redis-socket:///run/redis.sock"),
        ("unix:///s?db=one", "number of a database, not 'one'"),
        ("embedded://data", "three slashes"),
        ("embedded:///", "root directory"),
    ],
)
def test_a_bad_uri_is_shown_with_its_remedy(uri: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=f"^bad Redis URI .*{remedy}"):
        parse_redis_uri(uri)


@pytest.mark.parametrize(
    ("uri", "masked"),
    [
        ("redis://h:6379/1", "redis://h:6379/1"),
        ("redis://u@h:6379", "redis://u@h:6379"),
        ("redis://u:SECRET@h:6379", "redis://u:***@h:6379"),
        ("redis://:SE@CR/ET?#@h", "redis://:***@h"),
        ("redis://:a://SECRET@h", "redis://:***@h"),
        ("u:SECRET@h:6379", "u:***@h:6379"),
        ("redis://u:SECRET", "redis://u:***"),
        ("redis://u:SECRET/1", "redis://u:***/1"),
        ("redis-cluster://a:1,b:2", "redis-cluster://a:1,b:2"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("unix:///s?db=1&password=SECRET@#x", "unix:///s?db=1&password=***#x"),
        ("rediss://h?ssl_password=SECRET&x=1", "rediss://h?ssl_password=***&x=1"),
        ("redis-sentinel://:SECRET@h?password=SECRET:SECRET@SECRET&master=m", "redis-sentinel://:***@h?password=***&master=m"),
    ],
)  # fmt: skip
def test_a_password_is_never_shown(uri: str, masked: str) -> None:
    assert mask_password(uri) == masked


def test_an_error_masks_the_password() -> None:
    with pytest.raises(ValueError, match="bad Redis URI") as caught:
        parse_redis_uri("redis://user:SECRET@h:port/1")
    assert "user:***@h" in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_spec_does_not_show_its_passwords() -> None:
    spec = parse_redis_uri("redis-sentinel://:SECRET@h?master=m&password=SECRET")
    assert (spec.password, spec.sentinel_password) == ("SECRET", "SECRET")
    assert "SECRET" not in repr(spec)
