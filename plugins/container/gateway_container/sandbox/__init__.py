"""Sandboxes: isolated execution of untrusted code."""
