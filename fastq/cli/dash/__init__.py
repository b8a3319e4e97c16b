"""``fastq dash``: a dashboard that fills the terminal, with queues, tasks, servers, periodic tasks and Redis.

``command`` is what the shell sees; ``app`` and the views need Textual, which is imported only once it is to run.
"""
