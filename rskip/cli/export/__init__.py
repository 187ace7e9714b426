"""Write a model for other programs: ONNX graphs, CTranslate2, or fairseq with its own Transformer."""
