"""The state of a running gateway: models, queues, API keys, limits, and the encryption of sealed content."""
