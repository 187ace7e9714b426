"""Compares residual connections in your model, on your data, in your time: `rskip.compare` and `rskip compare`."""
