"""Etude: reinforcement fine-tuning for tool-using agents, on your own machine."""

__version__ = "0.1.0"
