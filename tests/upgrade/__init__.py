"""Two versions of fastq at once on one Redis, under load: ``make upgrade``."""
