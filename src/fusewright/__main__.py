"""`python -m fusewright`, the same as the command `fusewright`."""

import sys

from fusewright.cli.main import main

sys.exit(main())
