"""The kinds of columns: each is fitted once, parses every cell once, and encodes what it parsed."""
