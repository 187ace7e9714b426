"""Patches that make fairseq 0.12.2 work on current Python, PyTorch and NumPy without editing any of its files.

A start-up hook (`fairseq_compat.pth`; from Python 3.15 `fairseq_compat.start`; `rskip setup-fairseq` installs it) calls
`fairseq_compat.startup.register` in every process of the environment. That only registers an import hook. The patches
act only when fairseq's own modules are imported. Each patch is one file in `fairseq_compat.patches`. The environment
variable FAIRSEQ_COMPAT_DISABLE disables patches (names separated by commas, or `all`), to reproduce a symptom.
"""
