"""The log of fastq's processes: its lines, its limits, and an output that never blocks."""
