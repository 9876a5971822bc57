"""`python -m gateway` is the command `gateway`."""

import sys

from gateway.cli import main

# The guard is needed because a spawned worker imports this module again, under another name.
if __name__ == "__main__":
    sys.exit(main())
