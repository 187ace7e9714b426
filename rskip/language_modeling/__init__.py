"""Language models: a text's tokens, training, evaluation, and generation of text."""
