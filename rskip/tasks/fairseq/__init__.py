"""What the tasks share that train a Transformer through fairseq's programs."""
