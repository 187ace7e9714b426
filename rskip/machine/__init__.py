"""The machine: CPU and devices, torchrun's processes, worker processes, installed versions."""
