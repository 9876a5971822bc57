"""What is observed: metrics, the log of requests, statistics of runs, stalls."""
