"""`python -m rskip` is the command `rskip`."""

import sys

from rskip.cli.main import main

sys.exit(main())
