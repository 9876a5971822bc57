"""Engines in their own processes: starting the processes, and communicating with them over private Unix sockets.

The code of the process is `gateway.process.engine_host`. A frame consists of the length in four bytes, big endian, and a
MessagePack value of `gateway.engines.process.messages`.
"""
