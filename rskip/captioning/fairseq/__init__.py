"""The parts of captioning that run within fairseq: model, task and self-critical criterion."""
