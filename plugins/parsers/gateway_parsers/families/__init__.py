"""The families: data for the kit."""
