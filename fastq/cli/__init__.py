"""The commands: ``fastq``, one noun per file, and ``fastq-worker``."""
