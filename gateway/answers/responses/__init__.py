"""The Responses API: planning, running and ending a response, in the foreground and in the background."""
