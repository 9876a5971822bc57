"""Programs that run inside a sandbox: each is handed into it as text, and needs Python 3.9 and nothing else."""
