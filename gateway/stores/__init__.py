"""What stores share: packing of values, large parts, batches of events, writes through an outage, and tables of limits and usage."""
