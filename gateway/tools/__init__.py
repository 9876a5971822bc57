"""Tools: what a request comes to, their calls, what their results become; and what makes tool plugins short."""
