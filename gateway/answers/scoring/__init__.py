"""The rerank and score APIs."""
