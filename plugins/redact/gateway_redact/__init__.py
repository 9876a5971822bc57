"""The policy `redact`: replaces what matches patterns, in prompts and in output."""

from gateway_redact.plugin import RedactConfig, gateway_register_policies, open_redact
from gateway_redact.policy import RedactPolicy
from gateway_redact.redaction import RedactingFilter, Redaction

__all__ = [
    "RedactConfig",
    "RedactPolicy",
    "RedactingFilter",
    "Redaction",
    "gateway_register_policies",
    "open_redact",
]
