"""Pretraining of the demo's bundled model from generated text alone: `python -m etude.recipes.email_demo.pretrain`.

Tokenizer, then shards of traces (`shards.py`), then training (`loop.py`) with plays in a company of unknown names
(`heldout.py`), then the model's folder (`model.py`). Every stage goes on where it was stopped.
"""
