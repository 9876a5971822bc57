"""What every format is made of: markers, an incremental JSON reader, readers of calls, the machine that drives them."""
