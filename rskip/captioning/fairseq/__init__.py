"""The parts of captioning that run within fairseq: model, task and self-critical criterion."""

import rskip.fairseq_plugin  # noqa: F401  (they build on it, and it registers them: whichever is imported first)
