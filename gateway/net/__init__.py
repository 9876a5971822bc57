"""Connecting, on behalf of requests, to hosts that only the request knows: for plugins that fetch."""
