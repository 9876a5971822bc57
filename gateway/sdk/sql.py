"""A store in an SQL database, for plugins that bring the database's driver."""

from gateway.sql.schema import (
    VERSIONS,
)
from gateway.sql.statements import (
    Operation,
    Rows,
    SqlDatabase,
    Statement,
)
from gateway.sql.store import (
    SqlStore,
)
from gateway.sql.upkeep import (
    StoreLimits,
)

__all__ = [
    "VERSIONS",
    "Operation",
    "Rows",
    "SqlDatabase",
    "SqlStore",
    "Statement",
    "StoreLimits",
]
