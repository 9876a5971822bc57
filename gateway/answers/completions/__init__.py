"""The Completions API: the model's raw text as choices."""
