"""What every test gets. Keep it small: a fixture of one suite belongs to that suite's folder."""

from __future__ import annotations

import signal

from hypothesis import settings

# A shell has what it starts in its background ignore SIGINT, and all that is started from there inherits that:
# commands that are tested with Ctrl-C would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Derandomized: a red run is red again, here and in CI. `--hypothesis-profile=search` looks for new
# counterexamples. No deadline: the time of one example says more about the machine than the code.
settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("repeatable")
