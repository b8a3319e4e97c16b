"""Go's and fastq's processes on one Redis at once: what is enqueued, what runs it, and the books of it."""
