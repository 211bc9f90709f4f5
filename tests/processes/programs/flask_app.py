"""A Flask application for gunicorn to preload."""

import flask
from everything import run, use_once

app = flask.Flask(__name__)
use_once()


@app.get("/<int:number>")
def view(number: int) -> dict[str, int]:
    return run(number)
