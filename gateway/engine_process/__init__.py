"""Engines in processes of their own: starting the processes, and speaking with them over private Unix sockets.

The process itself is `gateway.server.engine_host`. A frame is its length in four bytes, big endian, and a MessagePack value of
`gateway.engine_process.messages`.
"""
