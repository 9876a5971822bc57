"""Restricted connections to hosts that are named in requests, for plugins that fetch."""
