"""The messages that are read and written now and then, by the ``protobuf`` package and a generated module."""
