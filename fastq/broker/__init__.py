"""The broker layer: the only place that talks to Redis.

Every operation is data (``operation``): a script or command, its keys and arguments, and a parser for the reply. The
caller chooses the driver that sends it: ``blocking`` or ``aio``, on one server or a cluster. Longer work is a flow, a
generator that yields operations. So operations and flows are written once for all drivers.
"""
