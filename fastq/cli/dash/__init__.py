"""``fastq dash``: a dashboard that fills the terminal, with queues, tasks, servers, periodic tasks and Redis.

``command`` is the shell command; ``app`` and the views need Textual, which is imported only when the dashboard runs.
"""
