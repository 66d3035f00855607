"""The estimator: points and a few labels to labels for all points."""
