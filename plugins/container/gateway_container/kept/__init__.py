"""What is kept of containers on disk: whose they are, how long they live, and their files. Processes share it."""
