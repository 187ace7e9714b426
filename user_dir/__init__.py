"""A worked example of your own user-dir: it adds the connections `rezero` and `lanes` to all of rskip's models.

fairseq-train data-bin/numbers-en-de --user-dir user_dir --arch transformer_rskip_ln_tiny --connection lanes ...
"""

import rskip.fairseq_plugin  # rskip's architectures

from . import lanes, rezero  # our own connections, for all of rskip's architectures; this `rezero` replaces rskip's

__all__ = ["lanes", "rezero", "rskip"]
