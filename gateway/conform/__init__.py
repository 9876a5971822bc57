"""Checks of any server with OpenAI's API, over HTTP: `gateway conform URL`."""
