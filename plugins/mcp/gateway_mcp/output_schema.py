"""Validates a tool's result against its `outputSchema`. Runs in a helper process, because evaluating a schema may
take any time."""

from __future__ import annotations

import json


def schema_violation(schema: str, value: str) -> str:
    """Describe how `value` violates `schema`; both are JSON texts. Empty if it is valid.

    References are resolved within the schema only: nothing is fetched.
    """
    from jsonschema import SchemaError  # type: ignore[import-untyped]
    from jsonschema.validators import (  # type: ignore[import-untyped]
        Draft202012Validator,
        validator_for,
    )
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    document = json.loads(schema)
    kind = validator_for(document, default=Draft202012Validator)
    try:
        kind.check_schema(document)
        validator = kind(document, registry=Registry())
        error = next(validator.iter_errors(json.loads(value)), None)
    except SchemaError as problem:
        return f"the schema is invalid: {problem.message[:200]}"
    except Unresolvable as problem:
        return f"the schema has a reference that leads nowhere: {str(problem)[:200]}"
    return "" if error is None else error.message[:200]
