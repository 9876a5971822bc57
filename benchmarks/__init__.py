"""Benchmarks of the serving layer; see README.md."""
