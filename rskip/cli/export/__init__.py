"""Write a model for other programs: ONNX, CTranslate2, or fairseq."""
