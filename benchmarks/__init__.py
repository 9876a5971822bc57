"""Measurements of the serving layer; see README.md."""
