"""The connections of HTTP and WebSocket clients: uvicorn's protocols with limits on what a client may send, hold and leave unread.

The protocols are subclasses that `uvicorn.Config(http=..., ws=...)` takes. They extend the methods of `asyncio.Protocol`, the callbacks of
the parser (httptools) and a few more; `docs/decisions/uvicorn.md` lists these.
"""
