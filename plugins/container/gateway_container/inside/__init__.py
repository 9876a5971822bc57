"""Programs that run inside a sandbox. They are passed in as text and need only Python 3.9."""
