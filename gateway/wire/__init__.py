"""The OpenAI types as msgspec Structs: requests, answers, and how they are decoded and encoded."""
