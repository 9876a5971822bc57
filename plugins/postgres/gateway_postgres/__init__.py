"""The store `postgres`: responses, event logs, leases, conversations and chat completions in PostgreSQL, for any number of gateways.

The tables are those of `gateway_sql`, in a schema of their own. The table `schema_version` has the version of the schema.
Gateways notify each other of news by `NOTIFY`, on a channel with the name of the schema.
"""

from gateway_postgres.config import PostgresConfig
from gateway_postgres.plugin import gateway_register_stores, open_postgres

__all__ = ["PostgresConfig", "gateway_register_stores", "open_postgres"]
