"""Train and evaluate ResNets with any residual connection, on CIFAR or your own images.

`rskip run RECIPE` does both for each seed and writes run records.
"""
