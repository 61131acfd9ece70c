"""Says that it is ready, and stays until it is told to end."""

import os
import signal
import sys

if __name__ == "__main__":
    sys.stderr.write(f"arguments {sys.argv[1:]} environment {sorted(os.environ)}\n")
    sys.stderr.flush()
    for line in ("turnlane 0 ready on http://127.0.0.1:12345\n", "and more\n"):
        sys.stdout.write(line)
        sys.stdout.flush()
    signal.pause()
