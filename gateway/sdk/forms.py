"""Reading multipart forms within limits."""

from gateway.storage.forms import (
    Form,
    UnsupportedForm,
    uploaded,
)

__all__ = [
    "Form",
    "UnsupportedForm",
    "uploaded",
]
