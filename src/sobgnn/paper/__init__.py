"""The paper's evaluation: its models, the protocol that trains them, and tables and figures of the results."""
