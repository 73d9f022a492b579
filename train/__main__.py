"""`python -m train`."""

import signal
import sys

if __name__ == "__main__":
    # SIGTERM ends a command as Ctrl-C does, with exit code 4; both from here on, because the imports take a while.
    # KeyboardInterrupt is the one exception that libraries in C let through wherever it comes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from shared.cli import run_app
        from train.cli import app
    except KeyboardInterrupt:
        print("error: interrupted; run the same command again to go on", file=sys.stderr)
        sys.exit(4)
    run_app(app)
