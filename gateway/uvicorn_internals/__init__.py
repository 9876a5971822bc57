"""All use of uvicorn's private classes: the fast path of streams, the limiting protocols, and the self-check at start.

uvicorn promises nothing about these classes. `pyproject.toml` therefore bounds its version, and canned requests
are served over a connection in memory before the server listens. If the fast path fails the check, answers are sent by plain ASGI. If the protocols fail it,
the server does not start, because uvicorn's own protocols have no limits.
"""
