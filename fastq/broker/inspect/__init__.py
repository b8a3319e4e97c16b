"""What inspectors ask of Redis; servers use none of it."""
