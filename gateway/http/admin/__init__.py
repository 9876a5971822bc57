"""Endpoints for administrators: the state of models, queues, keys, runs and tool servers."""
