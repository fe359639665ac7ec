"""Log-probabilities of action tokens, without ever holding the logits of more than one chunk of them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from etude.learning.packing import PackedBatch
from etude.model.attention import output_head, packed_hidden


def action_logprobs(
    model: nn.Module, batch: PackedBatch, *, temperature: float, chunk: int, entropy: bool = False
) -> tuple[Float[Tensor, "actions"], Float[Tensor, "actions"] | None]:
    """Natural log-probabilities of a micro-batch's action tokens under `model`; see `chunked_logprobs`."""
    hidden = packed_hidden(model, batch.tokens, batch.lengths)
    return chunked_logprobs(
        hidden[batch.sources],
        output_head(model),
        batch.tokens[batch.targets],
        temperature=temperature,
        chunk=chunk,
        entropy=entropy,
    )


def chunked_logprobs(
    hidden: Float[Tensor, "actions hidden"],
    head: nn.Module,
    targets: Int[Tensor, "actions"],
    *,
    temperature: float = 1.0,
    chunk: int = 512,
    entropy: bool = False,
) -> tuple[Float[Tensor, "actions"], Float[Tensor, "actions"] | None]:
    """log softmax(head(hidden) / temperature)[target] for each token, and the entropy of that softmax if asked for.

    The logits of `chunk` tokens exist at a time: they are made again in the backward pass (one more matrix product
    with the head) instead of being kept. In float32 (float64 for float64 models), whatever the type of the weights.
    Gradients flow to `hidden` and the head through the log-probabilities; the entropy is detached, a measurement.
    """
    parts = [
        # Nothing random happens in a head, so there is no random state to restore.
        checkpoint(_logprobs, states, head, ids, temperature, entropy, use_reentrant=False, preserve_rng_state=False)
        for states, ids in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    ]
    logp = torch.cat([values for values, _ in parts])
    return logp, torch.cat([values for _, values in parts]) if entropy else None


def _logprobs(
    hidden: Float[Tensor, "chunk hidden"],
    head: nn.Module,
    targets: Int[Tensor, "chunk"],
    temperature: float,
    entropy: bool,
) -> tuple[Float[Tensor, "chunk"], Float[Tensor, "chunk"] | None]:
    logits = head(hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    norm = logits.logsumexp(dim=-1)
    logp = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - norm
    if not entropy:
        return logp, None
    with torch.no_grad():
        probabilities = (logits - norm.unsqueeze(-1)).exp()
        return logp, norm.detach() - (probabilities * logits).sum(dim=-1)
