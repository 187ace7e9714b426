"""The blocks that `rskip.adapt` knows, one file per kind, which registers them."""

from rskip.nn.hosts import bert, gpt2, llama, timm_resnet, timm_vit, torch_transformer, torchvision_resnet

__all__ = ["bert", "gpt2", "llama", "timm_resnet", "timm_vit", "torch_transformer", "torchvision_resnet"]
