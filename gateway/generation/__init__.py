"""One generation: its prompt, its sampling, its stops and its budgets; reading and writing the engine's outputs."""
