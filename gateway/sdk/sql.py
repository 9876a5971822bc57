"""A store in an SQL database, for plugins that bring the database's driver."""

from gateway.sql.schema import (
    VERSIONS,
)
from gateway.sql.statements import (
    Database,
    Operation,
    Rows,
    Statement,
)
from gateway.sql.store import (
    SqlStore,
)
from gateway.sql.upkeep import (
    Bounds,
)

__all__ = [
    "VERSIONS",
    "Bounds",
    "Database",
    "Operation",
    "Rows",
    "SqlStore",
    "Statement",
]
