"""Processes, memory and files; nothing here depends on graphs."""
