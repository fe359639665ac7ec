"""Figures for people. Needs the extra `plots` (matplotlib)."""
