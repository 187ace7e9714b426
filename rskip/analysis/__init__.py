"""Look inside a model: signals, gradients, ratios and gates of its residual blocks, as data and as figures."""
