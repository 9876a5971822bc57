"""Reading multipart forms within limits."""

from gateway.forms import (
    Form,
    UnsupportedForm,
    uploaded,
)

__all__ = [
    "Form",
    "UnsupportedForm",
    "uploaded",
]
