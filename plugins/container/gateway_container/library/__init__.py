"""Containers on disk: their owners, lifetimes and files. Shared by processes."""
