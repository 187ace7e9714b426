"""Translation of raw text, and how good it is."""
