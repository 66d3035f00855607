"""The paper's evaluation: splits, random search, seeds, results as JSON lines.

``python -m sobgnn.protocol`` runs it; :mod:`sobgnn.report` turns the lines into tables.
"""
