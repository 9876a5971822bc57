"""Answers of plugins' APIs, which write their own bytes."""
