"""Messages and changes for hypothesis, and the message that a client typically writes."""

from hypothesis import strategies as st

from fastq.wire.codec import TaskMessage

TYPICAL = TaskMessage(
    type="email:welcome",
    payload=b"\x00" * 100,
    id="9e2b1f0c-5b0a-4a38-8f0e-0f4b5c6d7e8f",
    queue="default",
    retry=25,
    timeout=1800,
)

texts = st.text(st.characters(codec="utf-8"), max_size=20)
header_keys = texts | st.sampled_from(("fastq", "fastq-", "fastq-reply", "Fastq-Reply", "not-fastq-"))
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
messages = st.builds(
    TaskMessage,
    type=texts,
    payload=st.binary(max_size=200),
    id=texts,
    queue=texts,
    retry=int32s,
    retried=int32s,
    error_msg=texts,
    last_failed_at=int64s,
    timeout=int64s,
    deadline=int64s,
    unique_key=texts,
    group_key=texts,
    retention=int64s,
    completed_at=int64s,
    headers=st.dictionaries(header_keys, texts, max_size=4),
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "payload": st.binary(max_size=200),
        "retried": int32s,
        "error_msg": texts,
        "last_failed_at": int64s,
        "completed_at": int64s,
        "headers": st.dictionaries(texts, texts, max_size=2),
    },
)
