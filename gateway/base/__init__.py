"""What everything above uses: errors, deltas, constraints, JSON schemas, the network, caches, timers and helper processes."""
