"""The store `sqlite`: responses, event logs, leases, conversations and chat completions in a file, for all gateways of one machine.

`gateway_sql` defines the schema. Each process has one writing thread, which runs all writes that arrive during a
transaction in one further transaction. Other threads read concurrently (WAL). Processes notify each other of changes by
datagrams, through sockets in the folder `<path>.sockets`.
"""

from gateway_sqlite.config import SqliteConfig
from gateway_sqlite.plugin import gateway_register_stores, open_sqlite

__all__ = ["SqliteConfig", "gateway_register_stores", "open_sqlite"]
