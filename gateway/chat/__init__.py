"""Chat Completions: the same deltas, assembled as choices."""
