"""The application: run folders, reports, the labeling page and the `sobgnn` command."""
