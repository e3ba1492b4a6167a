"""What every tier of tests needs."""

from __future__ import annotations

import signal

# A shell that starts the suite in the background lets it ignore Ctrl-C, and its children inherit that: those that the
# tests interrupt would never notice.
signal.signal(signal.SIGINT, signal.default_int_handler)
