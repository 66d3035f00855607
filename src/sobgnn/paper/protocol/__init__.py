"""The protocol: splits, random search, seeds, results as JSON lines."""
