"""Who may do what, and how much of it: principals, keys, limits, admission, usage, sealed values."""
