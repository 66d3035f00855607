"""The paper's tables and figures, from the protocol's result lines."""
