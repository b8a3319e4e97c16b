"""Small tools without I/O."""
