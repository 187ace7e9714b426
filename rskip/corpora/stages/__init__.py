"""The stages that a corpus's text goes through, each of which continues where a killed one stopped."""
