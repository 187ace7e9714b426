"""List, describe and publish pretrained models."""
