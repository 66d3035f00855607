"""Results to tables, figures and pages; trains nothing."""
