"""The demo: `make demo`, or `python -m examples.demo --folder . --question "Which files mention heartbeat?"`."""

from __future__ import annotations

import signal
import sys

# The imports take half a second, in which nothing is there to be cleaned up: Ctrl-C then ends the process as it stands,
# without a traceback from wherever an import was. `main` gives it its meaning back.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from examples.demo.play import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
