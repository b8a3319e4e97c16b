"""Capacity planning: ``fastq bench`` measures a machine and its Redis, ``fastq plan`` computes from the figures.

``measure`` takes the figures, ``profile`` stores them, ``load`` describes the load, ``model`` and ``plan`` compute
without I/O. An end, like ``cli``; docs/planning.md has the method.
"""
