"""What every API in front shares: one call of the model, the loop of calls and tools, and what is asked of both."""
