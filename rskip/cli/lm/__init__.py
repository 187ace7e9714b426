"""Train language models with any residual connection, on a public text or your own.

`rskip run RECIPE` also evaluates each seed and writes run records. `rskip generate` generates text.
"""
