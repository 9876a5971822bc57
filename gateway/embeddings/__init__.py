"""The Embeddings API, and models that do nothing else."""
