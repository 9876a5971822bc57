"""The store `sqlite`: responses, event logs, leases, conversations and chat completions in a file, for all gateways of one machine.

The schema is that of `gateway_sql`. Each process has one thread that writes; it stores what was asked for meanwhile in
one transaction. Other threads read beside it (WAL). Processes notify each other of news by datagrams, through sockets
in the folder `<path>.sockets`.
"""

from gateway_sqlite.config import SqliteConfig
from gateway_sqlite.plugin import gateway_register_stores, open_sqlite

__all__ = ["SqliteConfig", "gateway_register_stores", "open_sqlite"]
