"""``make demo``: a real workload through a real Redis and a real ``fastq-worker``, with every task accounted for.

``app`` is the app of the worker, and the part to read first; ``run`` has the steps in order. An end, like ``cli``: only
the command imports from here.
"""
