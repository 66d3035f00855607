"""`python -m sobgnn`: the command, where its script is not on the path."""

import sys

from sobgnn.cli import main

sys.exit(main())
