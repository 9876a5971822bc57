"""Plugins: the hooks, the protocols of what they offer, and finding and loading them."""
