"""Building blocks of formats: markers, incremental JSON, call readers and the machine that drives them."""
