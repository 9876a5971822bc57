"""Connections of HTTP and WebSocket clients: uvicorn's protocols with limits on what a client may send, keep open and
leave unread.

The protocols are subclasses that are passed to `uvicorn.Config(http=..., ws=...)`. They extend the methods of
`asyncio.Protocol`, the callbacks of the parser (httptools) and a few more; `docs/decisions/uvicorn.md` lists them.
"""
