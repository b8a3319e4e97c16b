"""The commands: ``fastq``, one noun a file, and ``fastq-worker``."""
