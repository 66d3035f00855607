"""The results of a fit: measurements, a run folder, a report page, predictions for new points."""
