"""``make demo``: a real workload through a real Redis and a real ``fastq-worker``, with every task accounted for.

Read ``app`` first: it is the app of the worker. ``run`` has the steps in order. Like ``cli``, no other package imports
this one.
"""
