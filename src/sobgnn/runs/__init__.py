"""What a fit leaves behind: measurements, a folder, a page to look at, predictions for new points."""
