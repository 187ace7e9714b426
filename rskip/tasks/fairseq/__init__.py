"""Code shared by the tasks that train a Transformer with fairseq's programs."""
