"""The paper's tables and figures, from the lines that the protocol wrote."""
