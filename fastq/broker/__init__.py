"""Everything that talks to Redis, and the only package that imports ``redis``.

``uri`` says what a Redis URL means, ``connection`` turns it into a client, ``embedded`` starts a private server.
"""
