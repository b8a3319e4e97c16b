"""``make demo``: a real workload through a real Redis and a real ``fastq-worker``, every task accounted for.

``app`` is what the worker runs and the part to read first; ``run`` is what happens in order. An end, like ``cli``:
nothing of fastq imports from here but the command.
"""
