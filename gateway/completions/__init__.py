"""Completions: the model's raw text as choices."""
