"""The paper's evaluation: its models, the protocol that trains them, and tables and figures of the results.

``sobgnn reproduce`` runs it, or ``python -m sobgnn.paper``.
"""
