"""Start-up: selecting and opening what the configuration names: engines, renderers, parsers, tools, stores, APIs."""
