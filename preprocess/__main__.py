"""`python -m preprocess`."""

from preprocess.cli import app, stop_on_sigterm
from shared.cli import run_app

if __name__ == "__main__":
    stop_on_sigterm()
    run_app(app)
