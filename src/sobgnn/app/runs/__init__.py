"""What a fit leaves: a folder with its model, predictions, facts and report."""

# Files of a run folder. The table marks it as a run; the last three are for people.
TABLE, ARRAYS, METRICS, CHECKS, MODEL, PREDICTIONS, REPORT = (
    "table.json", "table.npz", "metrics.json", "checks.json", "model", "predictions.csv", "report.html",
)  # fmt: skip
# What --export adds.
FORMATS = {
    "parquet": "predictions.parquet",
    "jsonl": "predictions.jsonl",
    "label-studio": "label-studio.json",
    "spreadsheet": "predictions.spreadsheet.csv",
}
FILES = (TABLE, ARRAYS, METRICS, CHECKS, MODEL, PREDICTIONS, REPORT, *FORMATS.values())
