"""Start-up: selects and opens what the configuration names: engines, renderers, output formats, tools, stores and
APIs."""
