from shared.cli import run_app
from train.cli import app

if __name__ == "__main__":
    run_app(app)
