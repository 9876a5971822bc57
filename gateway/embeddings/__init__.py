"""The Embeddings API."""
