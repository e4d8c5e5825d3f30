"""Files: one module a format, each with its load and its save."""
