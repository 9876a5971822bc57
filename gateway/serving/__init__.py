"""What a running gateway holds and how it runs: models, limits, metrics, keys, processes."""
