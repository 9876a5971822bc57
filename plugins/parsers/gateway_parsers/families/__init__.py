"""Definitions of the model families, as data for the kit."""
