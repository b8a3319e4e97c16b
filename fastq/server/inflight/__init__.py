"""Tasks in flight: from their dequeue until their end is written.

``processor`` and ``_processor`` take leased tasks, give them to the pool, and learn how they ended; ``dispositions``
has the rules of what follows. ``ack_planner`` and ``ack_writer`` write it, many in a call. ``tasks`` are those in
flight, ``uncertain`` is what is not known of them, ``in_flight`` is all that the actors share of this.
"""
