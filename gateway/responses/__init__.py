"""The Responses API: from a request to a plan, its run, its events, its end, in the foreground and without a client."""
