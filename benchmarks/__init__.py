"""Benchmarks: what fastq costs, against what it stands on and what it competes with, in ratios of one run."""
