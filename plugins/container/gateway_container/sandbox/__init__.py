"""Sandboxes: where code runs that nobody has read, apart from the machine and from each other."""
