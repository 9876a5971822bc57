"""The Chat Completions API: planning an answer, and assembling deltas to choices."""
