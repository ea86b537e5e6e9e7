#!/usr/bin/env bash
# From generated click logs to predictions, in about a minute: features, DLRM, AUC, predictions.
set -euo pipefail
logs=${1:-runs/criteo-logs}
[ -d "$logs" ] || flambeau generate clicks --rows 200000 --ids 20000 --out "$logs"
flambeau criteo "$logs" --mode small --train-days 0-5 --test-day 6 --min-count 2 \
	--out runs/criteo-example batch_size=512 "${@:2}"
