"""Watching a run: figures of each step, rules over them, and the alerts that they raise."""
