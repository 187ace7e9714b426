"""Write a model for other programs: ONNX, CTranslate2, Hugging Face, or fairseq."""
