"""The broker layer: the only place that talks to Redis.

Every operation is data (``operation``): a script or command, its keys and arguments, and a parser for the reply. What
sends it is chosen by the caller: ``blocking`` or ``aio``, on one server or a cluster. Longer work is a generator that
yields operations, so that it too is written once.
"""
