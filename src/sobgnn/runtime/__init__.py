"""Processes, memory and files; nothing here knows of graphs."""
