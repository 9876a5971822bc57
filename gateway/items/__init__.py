"""Turning a parser's deltas into items and events: assemblers, item builders, citations and log probabilities."""
