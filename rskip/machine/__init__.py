"""What a program runs on: processor and devices, torchrun's processes, worker processes, versions."""
