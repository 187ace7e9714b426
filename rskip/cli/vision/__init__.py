"""Train PreAct-ResNets on CIFAR with any residual connection, and evaluate them.

`rskip run RECIPE` does both, seed by seed, and leaves records.
"""
