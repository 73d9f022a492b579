"""`python -m preprocess`."""

from preprocess.cli import app
from shared.cli import run_app

if __name__ == "__main__":
    run_app(app)
