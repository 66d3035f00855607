"""The `sobgnn` command: one file per subcommand."""
