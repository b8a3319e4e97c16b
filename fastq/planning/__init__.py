"""Capacity planning: ``fastq bench`` measures a machine and its Redis, ``fastq plan`` computes from the figures.

``measure`` takes the figures, ``profile`` stores them, ``load`` describes the load, ``model`` and ``plan`` compute
without I/O. Like ``cli``, no other package imports this one. docs/planning.md explains the method.
"""
