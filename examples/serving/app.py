"""Predictions over HTTP: `EXPORT=exports/clicks uvicorn app:app`."""

import os
from typing import Any

from fastapi import FastAPI, HTTPException

import flambeau as fb
from flambeau.errors import UserError

app = FastAPI()
predictor = fb.Predictor.load(os.environ["EXPORT"])


@app.post("/predict")
def predict(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        return predictor.predict(rows).to_pylist()
    except UserError as error:
        raise HTTPException(422, str(error)) from error


@app.post("/refresh")
def refresh() -> bool:
    return predictor.refresh()
