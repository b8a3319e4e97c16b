"""The choice of queues by weight or in strict order.

Nothing here knows Redis. The fetcher asks how to split a batch, requests the tasks, and reports how many did not come.
"""

import math
import random

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport log
from libc.stdint cimport int64_t

# Unicode's White_Space, which Go's strings.TrimSpace removes; str.strip() removes U+001C-U+001F, too.
_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

# With these bounds every product of a weight and a count stays below 2**62.
cdef enum:
    MOST_WEIGHT = 1 << 30
    MOST_TASKS = 1 << 20
    MOST_CYCLE = 1 << 30

cdef struct Entry:
    int64_t weight
    int64_t served
    int64_t asked
    bint skipped


def is_blank(text):
    """Return whether Go's ``strings.TrimSpace`` leaves nothing of ``text``."""
    return not text.strip(_WHITE_SPACE)


def normalize_queues(queues):
    """Return the weights as asynq uses them: without blank names and weights <= 0, divided by their common divisor.

    If no queue is left, the result is ``{"default": 1}``.
    """
    kept = {name: weight for name, weight in queues.items() if weight > 0 and not is_blank(name)}
    if not kept:
        return {"default": 1}
    divisor = math.gcd(*kept.values())
    return {name: weight // divisor for name, weight in kept.items()}


@cython.final
cdef class Prioritizer:
    """A weighted scheduler of queues: picks the next queue, and divides a batch of tasks among queues.

    ``queues`` are passed to ``normalize_queues``; a sum of weights above 2**30 is a ``ValueError``. Queues of equal
    weight are in a fixed order that ``seed`` determines. Not thread-safe.

    The maths of a split. Queue i has the weight w and the count x of the tasks charged to it. W is the sum of the
    weights of the queues asked, X the sum of their counts. The fair count of queue i is w·X/W; its credit is
    w·X/W - x. The next task goes to the queue with the least (x + 1)/w among those with x < w·(X + 1)/W: the quota
    method of Balinski and Young. As long as the same queues are asked, three things hold. Every count is less than one
    task from fair after every task (all in whole numbers, no rounding). W tasks give each queue its w. A queue waits
    for less than 2·W/w tasks.

    Queues that take turns get helpings in place of single tasks. It takes several splits to ask all queues; a helping
    is the queue's weighted share of the tasks of all these splits. As long as the same queues are asked, every count is
    less than two helpings from fair.

    How far credit is carried over. A split charges the tasks that it asks for. ``give_back`` takes back the tasks that
    did not come. After that, the queue's credit is at most the number of tasks that came, plus a fraction of a task: a
    call that brought nothing still was a turn. A queue that is skipped is charged whole tasks until its credit is less
    than one. So an hour of being empty or failing earns less than a task, and an hour of being served alone costs
    nothing. A queue whose calls are cut by bytes catches up as far as it can.
    """

    cdef Entry *entries
    cdef Py_ssize_t size
    cdef int64_t fair_served  # X and W after the last split
    cdef int64_t fair_weight
    cdef tuple names
    cdef dict places
    cdef object random
    cdef readonly bint strict

    def __init__(self, queues, strict=False, seed=None):
        weights = normalize_queues(queues)
        if sum(weights.values()) > MOST_WEIGHT:
            raise ValueError(f"the weights of the queues are too far apart: {weights!r}")
        self.random = random.Random(seed).random
        ranks = [(-weight, self.random(), name) for name, weight in weights.items()]
        self.names = tuple([name for _, _, name in sorted(ranks)])
        self.places = {name: place for place, name in enumerate(self.names)}
        self.strict = strict
        self.size = 0
        PyMem_Free(self.entries)
        self.entries = <Entry *> PyMem_Calloc(len(self.names), sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError
        self.size = len(self.names)
        for place, name in enumerate(self.names):
            self.entries[<Py_ssize_t> place].weight = weights[name]

    def __dealloc__(self):
        PyMem_Free(self.entries)

    @property
    def weights(self):
        """Return the normalized weight of each queue, the heaviest first."""
        return {name: self.entries[<Py_ssize_t> place].weight for name, place in self.places.items()}

    def order(self):
        """Return all queues: by weight if strict, else in a new weighted random order without replacement.

        The chance of a queue to be next is its weight divided by the sum of the weights not yet drawn, as in asynq's
        shuffle.
        """
        cdef double draw
        if self.strict or self.size == 1:
            return self.names
        # A race: each queue draws an exponentially distributed time of rate w. Queue i wins with probability w/W.
        times = []
        for place in range(self.size):
            draw = self.random()
            times.append((-log(1.0 - draw) / self.entries[<Py_ssize_t> place].weight, place))
        times.sort()
        return tuple([self.names[place] for _, place in times])

    def split(self, Py_ssize_t n, skip=frozenset(), Py_ssize_t most_queues=0):
        """Return ``(queue, count)`` for each queue to ask, the counts adding up to ``n``; charge them to the queues.

        ``skip`` names the queues known to be empty, paused or failing; their share goes to the others. The list is
        empty if all are skipped. In strict order the first queue that is not skipped is asked for everything. If more
        than ``most_queues`` queues are left (0: any number), they take turns, and the counts may add up to less than
        ``n``.
        """
        cdef Py_ssize_t place
        cdef Py_ssize_t open_entries = 0
        cdef int64_t weight = 0, served = 0
        cdef Entry *entry
        if not 0 <= n <= MOST_TASKS:
            raise ValueError(f"cannot split {n} tasks: not in 0..{MOST_TASKS}")
        for place in range(self.size):
            entry = &self.entries[place]
            # In strict order, all queues behind the first queue that is not skipped count as skipped.
            entry.skipped = self.names[place] in skip or (self.strict and weight != 0)
            if not entry.skipped:  # a skipped queue keeps ``asked``: its tasks may still be on their way
                entry.asked = 0
                weight += entry.weight
                served += entry.served
                open_entries += 1
        if weight == 0:
            return []
        if 0 < most_queues < open_entries:
            n = self.help(n, served, weight, min(n * open_entries // most_queues, MOST_CYCLE))
        else:
            self.pour(n, served, weight)
        self.settle(served + n, weight)
        return [
            (self.names[place], self.entries[place].asked)
            for place in range(self.size)
            if self.entries[place].asked and not self.entries[place].skipped
        ]

    cdef void pour(self, Py_ssize_t n, int64_t served, int64_t weight) noexcept:
        """Distribute n tasks one by one; fractions are compared by cross-multiplication."""
        cdef Entry *entry
        cdef Entry *best
        cdef Py_ssize_t place
        for _ in range(n):
            served += 1
            best = NULL
            for place in range(self.size):
                entry = &self.entries[place]
                # At least one queue passes this: with the new task, the credits add up to one task.
                if entry.skipped or entry.served * weight >= entry.weight * served:
                    continue
                if best == NULL or (entry.served + 1) * best.weight < (best.served + 1) * entry.weight:
                    best = entry
            best.served += 1
            best.asked += 1

    cdef Py_ssize_t help(self, Py_ssize_t n, int64_t served, int64_t weight, int64_t cycle) noexcept:
        """Distribute up to n tasks in helpings, each a queue's share of ``cycle`` tasks; return how many.

        Once half is given and the rest is too little for a helping, the rest is added to the helpings given so far, in
        proportion: a separate call for a few tasks would cost as much as one for many.
        """
        cdef Entry *entry
        cdef Entry *best
        cdef Py_ssize_t place
        cdef Py_ssize_t left = n
        cdef int64_t helping, share, given, total, best_helping = 0
        while left:
            best = NULL
            for place in range(self.size):
                entry = &self.entries[place]
                if entry.skipped or entry.served * weight >= entry.weight * (served + 1):
                    continue
                helping = max(1, entry.weight * cycle // weight)
                if helping > left and 2 * left < n:
                    continue
                helping = min(helping, left)
                if best == NULL or (entry.served + helping) * best.weight < (best.served + best_helping) * entry.weight:
                    best, best_helping = entry, helping
            if best == NULL:
                break
            best.served += best_helping
            best.asked += best_helping
            served += best_helping
            left -= best_helping
        total = given = n - left
        for place in range(self.size):
            entry = &self.entries[place]
            if entry.asked and not entry.skipped:
                share = entry.asked * left // given
                entry.asked += share
                entry.served += share
                total += share
        return total

    cdef void settle(self, int64_t served, int64_t weight) noexcept:
        """Drop the credits of skipped queues, and take whole cycles off all counts so that they stay small."""
        cdef int64_t cycles = served // weight
        cdef Entry *entry
        cdef Py_ssize_t place
        for place in range(self.size):
            entry = &self.entries[place]
            if entry.skipped:
                entry.served = max(entry.served, entry.weight * served // weight)
            entry.served -= cycles * entry.weight
        self.fair_served = served - cycles * weight
        self.fair_weight = weight

    def give_back(self, queue, Py_ssize_t count):
        """Report that ``count`` tasks of the last request to ``queue`` did not come, for any reason."""
        cdef Entry *entry
        if queue not in self.places:
            raise ValueError(f"not a queue of this prioritizer: {queue!r}")
        entry = &self.entries[<Py_ssize_t> self.places[queue]]
        if not 0 <= count <= entry.asked:
            raise ValueError(f"queue {queue!r} was asked for {entry.asked} tasks and cannot give back {count}")
        entry.asked -= count  # from here on, ``asked`` is the number of tasks that came
        # If nothing came there is no credit: otherwise a failing queue would keep the others from their turns for ever.
        if entry.asked and count:
            entry.served = max(entry.served - count, entry.weight * self.fair_served // self.fair_weight - entry.asked)
