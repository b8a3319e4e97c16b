"""Capacity planning: ``fastq bench`` measures a machine and its Redis, ``fastq plan`` answers from what was measured.

``measure`` takes the figures, ``profile`` keeps them, ``load`` says what is to be carried, ``model`` and ``plan``
reckon without I/O. An end, like ``cli``; docs/planning.md has the method.
"""
