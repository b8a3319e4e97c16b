"""Goes through all tasks of a state for the filters, a page of some hundreds at a time, and shows how far that is."""

from collections.abc import Iterator

from fastq.broker.inspect.bulk import Source
from fastq.broker.inspect.walk import Listed, Walk
from fastq.cli.progress import Look
from fastq.cli.session import Session
from fastq.info import TaskInfo
from fastq.inspector.task_lines import describe_listed

__all__ = ["walked"]


def walked(session: Session, source: Source, look: Look) -> Iterator[tuple[Listed, TaskInfo]]:
    """Give the tasks that are really in the state, the oldest first, with what they are.

    No more than a page is read ahead and none is kept, however many there are. What moves meanwhile may come twice.
    """
    walk = Walk(source)
    while (page := session.broker.run(walk.page())).tasks:
        for task in page.tasks:
            if (info := describe_listed(source.queue, source.state, task, session.now)) is not None:
                yield task, info
        walk.passed(page, page.tasks)
        look.note(len(page.tasks))
