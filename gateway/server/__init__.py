"""The server process: listening, workers, HTTP and WebSocket protocols, logs, shutdown."""
