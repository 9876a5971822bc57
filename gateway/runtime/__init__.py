"""The state of a running gateway: models, queues, keys, encryption of sealed content, limits."""
