"""The reference policy of a KL penalty: the policy as it was before reinforcement."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from peft import PeftModel
from torch import nn


class Reference:
    """With LoRA the same model with its adapter off, which costs nothing; else a frozen copy, as large as the model.

    Make it from the weights that the penalty should hold to: before a checkpoint is loaded into `model`.
    """

    def __init__(self, model: nn.Module) -> None:
        self._adapted = model if isinstance(model, PeftModel) else None
        self._copy = None if self._adapted is not None else copy.deepcopy(model).requires_grad_(False).eval()

    @contextmanager
    def policy(self) -> Iterator[nn.Module]:
        """The reference as a model, without gradients."""
        with torch.no_grad():
            if self._adapted is not None:
                with self._adapted.disable_adapter():
                    yield self._adapted
            elif self._copy is not None:
                yield self._copy
