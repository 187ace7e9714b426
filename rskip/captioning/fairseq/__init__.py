"""The parts of captioning that fairseq runs: model, task and self-critical criterion."""

import rskip.fairseq_plugin  # noqa: F401  (these modules need it, and it registers them)
