"""Patches that make fairseq 0.12.2 work on current Python, PyTorch and NumPy from outside, with no edited file.

A start-up hook (`fairseq_compat.pth`; from Python 3.15 `fairseq_compat.start`; `rskip setup-fairseq` installs it) calls
`fairseq_compat.startup.register` in every process of the environment. That registers an import hook and does
nothing else; the patches act when, and only when, fairseq's own modules are imported. Each patch is a file of
`fairseq_compat.patches`. The environment variable FAIRSEQ_COMPAT_DISABLE leaves patches out (names separated by
commas, or `all`), to reproduce a symptom.
"""
