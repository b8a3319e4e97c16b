"""The rarer messages, read and written by the ``protobuf`` package and a generated module."""
