"""The server process: listening, workers, signals, engines in processes of their own, logs, shutdown."""
