"""Pretraining at a size that takes seconds: what is trained on, that it learns, stops, goes on, and can be loaded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from etude.errors import ConfigError, DataError
from etude.model.attention import output_head, packed_hidden
from etude.model.load import load_model
from etude.recipes.email_demo.pretrain.__main__ import main
from etude.recipes.email_demo.pretrain.batches import epoch_batches, padded_length
from etude.recipes.email_demo.pretrain.loop import Pretraining
from etude.recipes.email_demo.pretrain.model import make_model, token_losses
from etude.recipes.email_demo.pretrain.settings import PretrainSettings
from etude.recipes.email_demo.pretrain.shards import TokenTraces, load_shards, make_shards, tokens_of_company
from etude.recipes.email_demo.pretrain.stages import Machine, pretrain
from etude.recipes.email_demo.recipe import MAX_TOKENS
from etude.rollout.chat import chat_format
from etude.rollout.compact import CompactChat

TINY = PretrainSettings(
    companies=2,
    inboxes=1,
    mails_per_inbox=60,
    questions=16,
    rounds=2,
    tokenizer_companies=4,
    vocab_size=500,
    layers=2,
    hidden=32,
    heads=2,
    kv_heads=1,
    intermediate=64,
    tokens=20_000,
    tokens_per_step=2048,
    lr=1e-2,
    warmup_steps=3,
    plays=1,
    play_scenarios=6,
    play_mails_per_inbox=60,
)
HERE = Machine(device="cpu", workers=0, compiled=False, stop_after_s=None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrain")
    assert pretrain(TINY, folder, HERE)
    return folder


@pytest.fixture(scope="module")
def chat(made: Path) -> CompactChat:
    return CompactChat(AutoTokenizer.from_pretrained(made / "tokenizer"))


@pytest.fixture(scope="module")
def traces(made: Path) -> TokenTraces:
    return load_shards(made / "shards", TINY.companies)


def new_training(made: Path, traces: TokenTraces, folder: Path, **changes: float) -> Pretraining:
    folder.mkdir(exist_ok=True)
    chosen = dataclasses.replace(TINY, **changes)  # type: ignore[arg-type]
    model = make_model(chosen, AutoTokenizer.from_pretrained(made / "tokenizer"))
    return Pretraining(chosen, model, traces, folder, device="cpu", compiled=False)


def run(training: Pretraining, steps: int | None = None) -> bool:
    last = None if steps is None else training.progress.step + steps
    return training.run(stop=lambda: training.progress.step == last, on_log=lambda figures: None, on_play=lambda: None)


# --- traces as tokens ---------------------------------------------------------------------------------------------


def test_traces_are_whole_attempts_of_which_the_assistant_wrote_its_turns(
    chat: CompactChat, traces: TokenTraces
) -> None:
    for start, length in zip(traces.starts, traces.lengths, strict=True):
        tokens = traces.tokens[start : start + length].tolist()
        written = traces.written[start : start + length]
        text = chat.decode(tokens)
        assert text.startswith("<|system|>")
        assert text.endswith("<|end|>")
        assert length <= MAX_TOKENS
        starts = np.flatnonzero(np.diff(written.astype(int)) == 1)  # each turn follows <|assistant|>
        assert {tokens[index] for index in starts} == {chat.codec.controls["<|assistant|>"]}
        turns = "".join(chat.decode([token]) for token, mine in zip(tokens, written, strict=True) if mine)
        calls = [chat.parse(chat.codec.encode(chat.codec.split(turn))) for turn in turns.split("<|end|>")[:-1]]
        assert [call.failures for call in calls] == [()] * len(starts)
        assert [call.calls[0].name for call in calls][-1] == "return_final_answer"


def test_a_shard_depends_on_settings_and_number_alone(chat: CompactChat, traces: TokenTraces) -> None:
    shards = [tokens_of_company(TINY, number, chat) for number in range(TINY.companies)]
    assert np.concatenate([shard.tokens for shard in shards]).tolist() == traces.tokens.tolist()
    assert shards[0].tokens.tolist() != shards[1].tokens.tolist()


def test_only_missing_shards_are_made(made: Path, tmp_path: Path) -> None:
    first = list(make_shards(TINY, made / "tokenizer", tmp_path, workers=0))
    before = (tmp_path / "00001.npz").stat().st_mtime_ns
    (tmp_path / "00000.npz").unlink()
    again = list(make_shards(TINY, made / "tokenizer", tmp_path, workers=0))
    assert (first, again) == ([(0, 2), (1, 2), (2, 2)], [(1, 2), (2, 2)])
    assert (tmp_path / "00001.npz").stat().st_mtime_ns == before
    assert len(list(tmp_path.iterdir())) == 2


def test_a_broken_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "00000.npz").write_bytes(b"no")
    with pytest.raises(DataError, match=r"00000\.npz is no shard: .*delete it"):
        load_shards(tmp_path, 1)


# --- batches and losses -------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(32, 2000),
    st.integers(0, 3),
)
@settings(max_examples=60)
def test_an_epoch_has_every_trace_once_in_batches_that_fit(lengths: list[int], most: int, epoch: int) -> None:
    sizes = np.array(lengths, dtype=np.int32)
    batches = epoch_batches(sizes, most, 7, epoch)
    assert sorted(int(index) for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * padded_length(int(sizes[batch].max())) <= most
    again = epoch_batches(sizes, most, 7, epoch)
    assert all(np.array_equal(one, other) for one, other in zip(batches, again, strict=True))


def test_losses_are_those_of_each_trace_alone(made: Path, traces: TokenTraces) -> None:
    model = make_model(TINY, AutoTokenizer.from_pretrained(made / "tokenizer")).eval()
    shortest = np.argsort(traces.lengths)[:3]
    alone = [
        torch.from_numpy(traces.tokens[traces.starts[i] : traces.starts[i] + traces.lengths[i]].astype(np.int64))
        for i in shortest
    ]
    width = max(map(len, alone)) + 5
    rows = torch.stack([F.pad(tokens, (0, width - len(tokens)), value=9) for tokens in alone])
    inside = torch.stack([torch.arange(width) < len(tokens) for tokens in alone])
    losses = token_losses(model, rows, inside)
    for row, tokens in enumerate(alone):
        logits = output_head(model)(packed_hidden(model, tokens, [len(tokens)]))
        expected = F.cross_entropy(logits[:-1], tokens[1:], reduction="none")
        torch.testing.assert_close(losses[row, : len(tokens) - 1], expected, rtol=1e-4, atol=1e-4)
        assert losses[row, len(tokens) - 1 :].abs().max() == 0


def test_what_the_model_only_reads_counts_as_its_weight_says(made: Path, traces: TokenTraces, tmp_path: Path) -> None:
    weights = {}
    for shown_weight in (0.0, 1.0):
        training = new_training(made, traces, tmp_path / f"{shown_weight}", shown_weight=shown_weight, tokens=8000)
        assert run(training)
        logged = training._step(np.arange(4))  # the figures do not depend on the weight, what is learned does
        weights[shown_weight] = (logged[1] / logged[3]).item()
    assert weights[1.0] < weights[0.0] - 0.1


# --- training -----------------------------------------------------------------------------------------------------


def test_it_learns(made: Path) -> None:
    rows = [json.loads(line) for line in (made / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["tokens"] >= TINY.tokens
    assert rows[-1]["loss_written"] < rows[-1]["loss_shown"] < np.log(TINY.vocab_size)


def test_a_training_that_was_stopped_ends_as_one_that_was_not(made: Path, traces: TokenTraces, tmp_path: Path) -> None:
    whole, parts = new_training(made, traces, tmp_path / "a"), new_training(made, traces, tmp_path / "b")
    assert run(whole)
    assert not run(parts, steps=3)
    while not run(new := new_training(made, traces, tmp_path / "b"), steps=4):
        assert new.progress.step > 3
    assert new.progress == whole.progress
    for one, other in zip(whole.model.parameters(), new.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_folder_is_not_gone_on_with_under_other_settings(made: Path) -> None:
    with pytest.raises(ConfigError, match="begun with other lr, skills: choose another folder"):
        pretrain(dataclasses.replace(TINY, lr=1.0, skills=(0.5,)), made, HERE)


# --- the model's folder -------------------------------------------------------------------------------------------


def test_the_folder_holds_a_model_in_half_precision_with_its_tokenizer_and_figures(made: Path) -> None:
    loaded = load_model(str(made / "model"))
    assert isinstance(chat_format(loaded.tokenizer), CompactChat)
    saved = torch.load(made / "state.pt", weights_only=True)["model"]
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, saved[name].bfloat16().float())
    assert (made / "model" / "model.safetensors").stat().st_size < 2.1 * sum(v.numel() for v in saved.values())
    report = json.loads((made / "model" / "pretraining.json").read_text())
    assert report["settings"]["companies"] == 2
    assert {"right", "right_if_read", "given", "bad_calls", "hallucinated"} <= report["greedy"].keys()
    assert report["greedy"]["attempts"] == report["sampled"]["attempts"] == 6


def test_plays_are_recorded_on_the_way_and_at_the_end(made: Path) -> None:
    rows = [json.loads(line) for line in (made / "plays.jsonl").read_text().splitlines()]
    assert [(row["temperature"], row["attempts"]) for row in rows] == [(0.0, 2), (0.0, 6), (1.0, 6)]
    assert 0 < rows[0]["trained_tokens"] < rows[1]["trained_tokens"]


def test_the_bundled_model_is_small_enough() -> None:
    class Words(list[str]):
        eos_token_id = pad_token_id = 0

    model = make_model(PretrainSettings(), Words([""] * PretrainSettings().vocab_size))  # type: ignore[arg-type]
    assert sum(value.numel() for value in model.parameters()) <= 3_000_000


def test_the_command_line_stops_in_time_and_says_so(made: Path, tmp_path: Path) -> None:
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in vars_of(TINY).items() if name != "skills"]
    assert main(["--out", str(tmp_path / "new"), "--workers=0", "--stop-after=0", *arguments]) == 75
    assert main(["--out", str(made), "--workers=0", "--lr=1"]) == 2


def vars_of(chosen: PretrainSettings) -> dict[str, object]:
    return dataclasses.asdict(chosen)


# --- a rehearsal ---------------------------------------------------------------------------------------------------

REHEARSAL = dataclasses.replace(
    TINY,
    companies=4,
    mails_per_inbox=120,
    questions=80,
    rounds=2,
    tokenizer_companies=20,
    vocab_size=700,
    hidden=64,
    heads=4,
    kv_heads=2,
    intermediate=128,
    tokens=6e5,
    tokens_per_step=2048,
    play_scenarios=20,
)


@pytest.mark.acceptance
def test_rehearsal_of_everything_in_processes_of_their_own(tmp_path: Path) -> None:
    assert pretrain(REHEARSAL, tmp_path, dataclasses.replace(HERE, workers=2))
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert rows[-1]["loss_written"] < 1.6 < 2.2 < rows[0]["loss_written"]
    assert json.loads((tmp_path / "model" / "pretraining.json").read_text())["steps"] == rows[-1]["step"]
