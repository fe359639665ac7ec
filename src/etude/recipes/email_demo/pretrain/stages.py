"""The whole pretraining, stage by stage; each goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from etude.recipes.email_demo.pretrain.heldout import heldout_company, play_heldout
from etude.recipes.email_demo.pretrain.loop import Pretraining
from etude.recipes.email_demo.pretrain.model import make_model, write_model
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.pretrain.shards import load_shards, make_shards
from etude.recipes.email_demo.tokenizer import tokenizer_texts, train_tokenizer

log = logging.getLogger(__name__)

_TELL_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it runs. workers: processes that make traces, 0 for none but this one. compiled: run the model through
    torch.compile. stop_after_s: stop in time, to go on later; None runs to the end."""

    device: str
    workers: int
    compiled: bool
    stop_after_s: float | None


def pretrain(settings: PretrainSettings, folder: Path, machine: Machine) -> bool:
    """Make the model in `folder / "model"`. Returns False where the time was over before; call it again then.

    The folder also holds settings.json, tokenizer/, shards/, state.pt, log.jsonl and plays.jsonl.
    Raises ConfigError where the folder was begun with other settings.
    """
    began = time.monotonic()

    def stop() -> bool:
        return machine.stop_after_s is not None and time.monotonic() - began > machine.stop_after_s

    transformers_logging.disable_progress_bar()
    settings.save(folder)
    tokenizer = _tokenizer(settings, folder / "tokenizer")
    if not _traces(settings, folder, machine, stop):
        return False
    company = heldout_company(settings, folder / "heldout")
    traces = load_shards(folder / "shards", settings.companies)
    log.info("%d traces of %.1f tokens on average", len(traces.lengths), traces.lengths.mean())
    model = make_model(settings, tokenizer)
    log.info("%.3f million parameters", sum(value.numel() for value in model.parameters()) / 1e6)
    training = Pretraining(settings, model, traces, folder, device=machine.device, compiled=machine.compiled)

    def play(scenarios: int, temperature: float) -> dict[str, float]:
        write_model(model, tokenizer, folder / "model", {"settings": dataclasses.asdict(settings)})
        figures = play_heldout(folder / "model", company, scenarios, temperature)
        row = {"trained_tokens": training.progress.tokens, "temperature": temperature, **figures}
        with (folder / "plays.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        log.info("play %s", row)
        return figures

    def play_some() -> None:
        play(max(1, settings.play_scenarios // 3), 0.0)

    finished = training.run(stop=stop, on_log=_tell_step, on_play=play_some)
    if finished:
        report: dict[str, Any] = {
            "settings": dataclasses.asdict(settings),
            "trained_tokens": training.progress.tokens,
            "steps": training.progress.step,
            "greedy": play(settings.play_scenarios, 0.0),
            "sampled": play(settings.play_scenarios, 1.0),
        }
        write_model(model, tokenizer, folder / "model", report)
    return finished


def _tokenizer(settings: PretrainSettings, folder: Path) -> PreTrainedTokenizerBase:
    if not (folder / "tokenizer.json").is_file():
        texts = tokenizer_texts(settings.tokenizer_companies)
        train_tokenizer(texts, vocab_size=settings.vocab_size).save_pretrained(folder)
        log.info("the tokenizer is trained")
    return AutoTokenizer.from_pretrained(folder)


def _traces(settings: PretrainSettings, folder: Path, machine: Machine, stop: Callable[[], bool]) -> bool:
    """Whether all shards are there."""
    told = 0.0
    making = make_shards(settings, folder / "tokenizer", folder / "shards", workers=machine.workers)
    with closing(making):
        for there, of in making:
            if time.monotonic() - told > _TELL_EVERY_S or there == of:
                log.info("traces of %d of %d companies", there, of)
                told = time.monotonic()
            if there < of and stop():
                return False
    return True


def _tell_step(figures: Mapping[str, float]) -> None:
    log.info(
        "step %d: %.1fM tokens, loss %.4f written, %.4f shown, %.0f tokens/s",
        figures["step"],
        figures["tokens"] / 1e6,
        figures["loss_written"],
        figures["loss_shown"],
        figures["tokens_per_s"],
    )
