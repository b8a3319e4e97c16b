"""The messages that are needed now and then, read and written by the ``protobuf`` package and a generated module."""
