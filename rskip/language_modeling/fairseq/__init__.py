"""The language models that fairseq trains with `--task language_modeling --user-dir rskip`."""
