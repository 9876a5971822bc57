"""Code shared by all APIs: one generation, the tool-call loop, and settings of both."""
