"""Compare fastq with other task queues: each in processes and an environment of its own, in turn, on one machine."""
