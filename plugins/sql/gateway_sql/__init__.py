"""A store in an SQL database, without the driver: the schema, the statements, and the reading and writing of event logs.

An operation is a generator that yields statements and receives their rows. The same operation runs on a blocking driver
in a thread and on an asynchronous driver. A plugin adds the driver by implementing `SqlDatabase`, and opens a
`SqlStore` with it.
"""

from gateway_sql.schema import VERSIONS
from gateway_sql.statements import Operation, Rows, SqlDatabase, Statement
from gateway_sql.store import SqlStore
from gateway_sql.upkeep import StoreLimits

__all__ = [
    "VERSIONS",
    "Operation",
    "Rows",
    "SqlDatabase",
    "SqlStore",
    "Statement",
    "StoreLimits",
]
