"""The same operations through Go asynq and through fastq, on two databases that must stay equal; see README.md."""
