"""The OpenAI types as msgspec Structs: what comes in, what goes out, and how it is read and written."""
