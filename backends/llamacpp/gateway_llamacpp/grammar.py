from __future__ import annotations
from gateway.constraints import Constraint
def to_gbnf(constraint: Constraint) -> str:
    raise NotImplementedError
