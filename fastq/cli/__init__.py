"""The commands: ``fastq-worker`` and, in time, ``fastq``."""
