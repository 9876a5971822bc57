"""HTTP routes: decode requests, call the APIs, encode the answers."""
