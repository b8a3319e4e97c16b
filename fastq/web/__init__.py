"""The web UI, and asynqmon's REST API: ``FastqWeb`` is an ASGI app, ``fastq web`` serves it.

The web UI uses Redis only through ``fastq.inspector`` and, in the form that enqueues, a client. Of fastq, only the
command ``fastq web`` imports this package. ``site`` has the parts that all routes share, ``compat`` is asynqmon's API,
``pages`` has the pages.
"""

from fastq.web.access import Role, User
from fastq.web.asgi import FastqWeb
from fastq.web.auth import BasicAuth, ProxyAuth, TokenAuth

__all__ = ["BasicAuth", "FastqWeb", "ProxyAuth", "Role", "TokenAuth", "User"]
