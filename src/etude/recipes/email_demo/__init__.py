"""The laptop demo: a fictional company's mail, generated from a seed, and a small model that learns to search it."""

from etude.recipes.email_demo.recipe import environment

__all__ = ["environment"]
