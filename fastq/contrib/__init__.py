"""Integrations with frameworks. Each imports its framework; the rest of fastq imports none of them."""
