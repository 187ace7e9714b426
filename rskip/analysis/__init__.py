"""Analyses of a model's residual blocks: signals, gradients, ratios and gates, as data and as figures."""
