"""Turns the results of the walk into findings: name, reason, advice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastq.inspector.doctor.finding import Finding, Level, unseen
from fastq.inspector.doctor.suspects import MOST_REMEMBERED, Kind, Survey, Suspect

SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class _Verdict:
    level: Level
    why: str
    advice: str


_REPAIR: Final = "fastq doctor --repair"
_VERDICTS: Final[Mapping[Kind, _Verdict]] = {
    Kind.DANGLING: _Verdict(
        Level.PROBLEM,
        "their tasks were evicted or deleted by hand and are lost; Go servers keep such ids for ever",
        f"{_REPAIR} drops the ids; see eviction above for why the tasks may be gone",
    ),
    Kind.MISPLACED: _Verdict(
        Level.WARNING,
        "the state stored in the task differs from the list it is in: it may run twice, and is counted wrongly",
        "fastq task inspect shows the task; archive or delete it if it is not meant to run",
    ),
    Kind.UNLEASED: _Verdict(
        Level.PROBLEM,
        "no server works on them, and Go's recoverer does not see them: they never run again",
        f"{_REPAIR} gives them an expired lease, so that a recoverer takes them",
    ),
    Kind.INACTIVE: _Verdict(
        Level.PROBLEM,
        "a server lost them halfway; Go's recoverer fails on them each time",
        f"{_REPAIR} drops expired leases and makes lost tasks pending; run it again when the other leases have expired",
    ),
    Kind.EXPIRED: _Verdict(
        Level.PROBLEM,
        "their servers died or hang, and no recoverer has taken the tasks over: they do not run",
        "start a server that serves this queue: it takes them over at once; if one runs, see its log",
    ),
    Kind.OVERDUE_SET: _Verdict(
        Level.PROBLEM,
        "the server that aggregated these groups died, and no recoverer has returned the tasks",
        f"start a server that serves this queue, or {_REPAIR} gives them back to their groups",
    ),
    Kind.LOST_TASK: _Verdict(
        Level.PROBLEM,
        "they are in no list, so they are neither listed nor run",
        f"{_REPAIR} archives them while there is room (the completed ones are kept for a day): run or delete them",
    ),
    Kind.LEFTOVER: _Verdict(
        Level.WARNING,
        "left over from writes to tasks that were gone; they take memory",
        f"{_REPAIR} deletes them",
    ),
    Kind.LOST_LOCK: _Verdict(
        Level.WARNING,
        "no such unique task can be enqueued until they expire",
        f"{_REPAIR} releases them",
    ),
    Kind.UNKNOWN_KEY: _Verdict(
        Level.WARNING,
        "neither asynq nor fastq writes such keys; another program does, or a version of asynq before 0.18",
        "check what they are (TYPE, OBJECT IDLETIME), and delete those that are not needed",
    ),
    Kind.UNLISTED: _Verdict(
        Level.PROBLEM,
        "commands, dashboards and metrics do not show their tasks; servers that name these queues run them",
        f"{_REPAIR} lists them, then run fastq doctor again; fastq queue rm QUEUE --force deletes one that is not "
        "needed, as asynq's DeleteQueue leaves some of its keys",
    ),
    Kind.REMAINS: _Verdict(
        Level.WARNING,
        "they belong to no queue that is listed and never expire, as asynq's DeleteQueue leaves them; a new queue of "
        "the same name would be paused, or follow the old rule of its archive",
        "fastq queue rm QUEUE --force deletes them, and the queue's limits",
    ),
    Kind.LIMIT: _Verdict(
        Level.WARNING,
        "no queue of this name is listed, and no server serves it: it has had no task yet, or the name is mistaken; "
        "the limits never expire",
        "nothing, if tasks will come; if not, fastq lane limit --remove (limits) or fastq queue limit --remove (quota)",
    ),
    Kind.WRONG_TYPE: _Verdict(
        Level.PROBLEM,
        "every script that needs the key fails, so the queue stands still",
        "find out which program wrote it, then rename or delete it",
    ),
    Kind.PARKED: _Verdict(
        Level.WARNING,
        "a fastq queue move was interrupted: these tasks run in neither queue until it is finished",
        "run the same fastq queue move again; it finishes the move",
    ),
    Kind.FOLLOW_UP: _Verdict(
        Level.WARNING,
        "a Go server ended the run, or one that died: a server of fastq that serves this queue runs them within 30 s, "
        "but only if it has run tasks by key",
        f"{_REPAIR} enqueues them; a task that waits with the same key, as for a retry, gets the newer message",
    ),
    Kind.UNDECODABLE: _Verdict(
        Level.WARNING,
        "a producer writes messages that no server can read; fastq archived them unchanged",
        "fastq task inspect shows the bytes and the reason; fix the producer, then delete them",
    ),
}


def judge(survey: Survey) -> list[Finding]:
    """Make one finding for each kind and queue with suspects, and one for each kind without suspects."""
    findings = []
    refused = {check for check, _ in survey.refused}
    for kind in Kind:
        found = survey.of_kind(kind)
        findings += [_finding(kind, queue, suspects, survey) for queue, suspects in found.items()]
        if not found and kind not in refused:
            findings.append(Finding(kind.value, Level.OK, "none", count=0))
    return findings + [unseen(check, why, queue) for (check, queue), why in survey.refused.items()]


def _finding(kind: Kind, queue: str, suspects: list[Suspect], survey: Survey) -> Finding:
    verdict, count = _VERDICTS[kind], survey.counts[kind, queue]
    places = sorted({suspect.place for suspect in suspects if suspect.place})
    where = f" in {', '.join(places[:SHOWN])}" if places else ""
    at_least = "at least " if count >= MOST_REMEMBERED else ""
    examples = [f"{one.name} {one.detail}".rstrip() for one in suspects[:SHOWN]]
    return Finding(
        kind.value,
        verdict.level,
        f"{at_least}{count}{where}",
        verdict.why,
        verdict.advice,
        queue=queue or None,
        count=count,
        examples=tuple(examples),
    )
