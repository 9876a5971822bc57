"""Checks of an engine with real generations, used by `gateway doctor --generate` and the engine contract."""
