"""Turning a parser's deltas into items and events: the assembler, item builders, citations and log probabilities."""
