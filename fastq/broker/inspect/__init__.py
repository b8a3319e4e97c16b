"""The operations of inspectors; servers use none of them."""
