"""Tasks in flight: from their dequeue until their end is written.

``processor`` and ``_processor`` take leased tasks, give them to the pool, and receive their ends; ``dispositions``
decides what follows from an end. ``ack_planner`` and ``ack_writer`` write the ends, many per call. ``tasks`` has the
tasks in flight, ``uncertain`` the ends and dequeues whose outcome is unknown, ``in_flight`` the state that the actors
share.
"""
