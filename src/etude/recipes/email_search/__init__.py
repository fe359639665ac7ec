"""E-mail search (ART·E): find the answer to a question in somebody's mail, and cite it. See README.md here."""

from etude.recipes.email_search.recipe import environment

__all__ = ["environment"]
