"""Code that commands share: arguments, the client of an API, text for terminals."""
