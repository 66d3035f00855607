"""The paper's evaluation: splits, random search, seeds, results as JSON lines.

``python -m sobgnn.protocol`` runs it; :mod:`sobgnn.protocol.report` turns the lines into tables.
"""
