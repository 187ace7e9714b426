"""The stages that a corpus's text goes through, each of which goes on where a killed one stopped."""
