"""Errors of pages."""

from __future__ import annotations


class PageFailure(Exception):
    """A page cannot be shown. The message is shown to the model and the client."""
