"""Predictions over HTTP: `EXPORT=exports/clicks uvicorn app:app`."""

import os
from typing import Any

from fastapi import FastAPI

import flambeau as fb

app = FastAPI()
predictor = fb.Predictor.load(os.environ["EXPORT"])


@app.post("/predict")
def predict(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return predictor.predict(rows).to_pylist()


@app.post("/refresh")
def refresh() -> bool:
    return predictor.refresh()
