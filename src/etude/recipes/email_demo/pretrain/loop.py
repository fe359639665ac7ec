"""The training loop: batches from memory of the device, a state on disk from time to time, plays on the way."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import LlamaForCausalLM

from etude.errors import TrainingError
from etude.recipes.email_demo.pretrain.batches import epoch_batches, padded_length
from etude.recipes.email_demo.pretrain.model import token_losses
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.pretrain.shards import TokenTraces

LOG_EVERY, SAVE_EVERY_S = 50, 60.0

Losses = Callable[[LlamaForCausalLM, Int[Tensor, "rows length"], Bool[Tensor, "rows length"]], Float[Tensor, "..."]]


@dataclass
class Progress:
    """Where a training is. tokens: that were trained. epoch, batch: of the next step. plays: that were made."""

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    batch: int = 0
    plays: int = 0


class Pretraining:
    """One training, which can be left after any step and gone on with from its folder's `state.pt`."""

    def __init__(
        self,
        settings: PretrainSettings,
        model: LlamaForCausalLM,
        traces: TokenTraces,
        folder: Path,
        *,
        device: str,
        compiled: bool,
    ) -> None:
        self.settings, self.folder, self.device = settings, folder, device
        self.model = model.to(device).train()
        self._losses: Losses = torch.compile(token_losses, dynamic=True) if compiled else token_losses
        self._lengths = traces.lengths
        self._starts = torch.from_numpy(traces.starts).to(device)
        self._tokens = torch.from_numpy(traces.tokens).to(device)
        self._written = torch.from_numpy(traces.written).to(device)
        self._device_lengths = torch.from_numpy(traces.lengths).to(device)
        matrices = [value for value in self.model.parameters() if value.ndim >= 2]
        others = [value for value in self.model.parameters() if value.ndim < 2]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=settings.lr,
            betas=(0.9, 0.95),
            fused=True,
        )
        self.progress = Progress()
        if self._state_file.is_file():
            self._load()

    @property
    def done(self) -> bool:
        return self.progress.tokens >= self.settings.tokens

    def run(
        self,
        *,
        stop: Callable[[], bool],
        on_log: Callable[[Mapping[str, float]], None],
        on_play: Callable[[], None],
    ) -> bool:
        """Train until it is done (True) or `stop()`, which is asked before every step (False). The state is saved.

        on_log: figures of the last LOG_EVERY steps. on_play: called where a play is due.
        """
        saved = began = time.monotonic()
        sums, since = torch.zeros(4, dtype=torch.float64, device=self.device), self.progress.tokens
        epoch, batches = -1, []
        while not self.done and not stop():
            at = self.progress
            if epoch != at.epoch:
                epoch, batches = (
                    at.epoch,
                    epoch_batches(self._lengths, self.settings.tokens_per_step, self.settings.seed, at.epoch),
                )
            sums += self._step(batches[at.batch])
            at.step, at.batch = at.step + 1, at.batch + 1
            if at.batch == len(batches):
                at.epoch, at.batch = at.epoch + 1, 0
            if at.step % LOG_EVERY == 0 or self.done:
                figures = self._figures(sums.tolist(), at.tokens - since, time.monotonic() - began)
                self._log(figures)
                on_log(figures)
                sums, since, began = torch.zeros_like(sums), at.tokens, time.monotonic()
            if time.monotonic() - saved > SAVE_EVERY_S:
                self.save()
                saved = time.monotonic()
            if at.tokens >= self.settings.tokens * (at.plays + 1) / (self.settings.plays + 1) and not self.done:
                at.plays += 1
                on_play()
                began = time.monotonic()
        self.save()
        return self.done

    def save(self) -> None:
        """Write the state; what was there before stays until the new one is whole."""
        unfinished = self._state_file.with_suffix(".unfinished")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "progress": vars(self.progress),
        }
        torch.save(state, unfinished)
        unfinished.replace(self._state_file)

    def _step(self, batch: Any) -> Float[Tensor, "4"]:
        """One optimizer step; returns sums of losses and counts of tokens, written and shown."""
        tokens, inside, written = self._batch(batch)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        half = torch.autocast("cuda", torch.bfloat16) if self.device.startswith("cuda") else nullcontext()
        with half:
            losses = self._losses(self.model, tokens, inside)
        of_written = written[:, 1:].float()
        of_shown = inside[:, 1:].float() - of_written
        weights = of_written + self.settings.shown_weight * of_shown
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.grad_clip)
        if self.progress.step % LOG_EVERY == 0 and not torch.isfinite(norm):
            raise TrainingError(f"step {self.progress.step}: the gradient is not finite; lower lr and run again")
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.progress.tokens += int(self._lengths[batch].sum())
        with torch.no_grad():
            return torch.stack(
                [(losses * of_written).sum(), (losses * of_shown).sum(), of_written.sum(), of_shown.sum()]
            ).double()

    def _batch(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids, whether they are of the trace (else padding), and whether the assistant wrote them."""
        rows = torch.from_numpy(batch).to(self.device)
        width = torch.arange(padded_length(int(self._lengths[batch].max())), device=self.device)
        inside = width[None] < self._device_lengths[rows][:, None]
        where = (self._starts[rows][:, None] + width[None]).clamp_(max=len(self._tokens) - 1)
        return self._tokens[where].long() * inside, inside, self._written[where] & inside

    def _rate(self) -> float:
        """The learning rate of the next step: a linear warm-up in steps, then a cosine in tokens."""
        warm = min(1.0, (self.progress.step + 1) / self.settings.warmup_steps)
        share = min(1.0, self.progress.tokens / self.settings.tokens)
        return self.settings.lr * warm * (1 + math.cos(math.pi * share)) / 2

    def _figures(self, sums: list[float], tokens: int, seconds: float) -> dict[str, float]:
        written, shown, count_written, count_shown = sums
        return {
            "step": self.progress.step,
            "tokens": self.progress.tokens,
            "epoch": self.progress.epoch,
            "lr": self._rate(),
            "loss_written": written / max(count_written, 1.0),
            "loss_shown": shown / max(count_shown, 1.0),
            "tokens_per_s": tokens / seconds,
        }

    def _log(self, figures: Mapping[str, float]) -> None:
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(figures) + "\n")

    def _load(self) -> None:
        state = torch.load(self._state_file, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])

    @property
    def _state_file(self) -> Path:
        return self.folder / "state.pt"
