"""The engine's parts: uniform numbers, sampling, the slots' bookkeeping, the cache, the split of attention calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from etude.engine.local import EngineCore, EngineStats
from etude.engine.local.attention import CALL_COST, split_blocks
from etude.engine.local.cache import SlotCache
from etude.engine.local.sampler import sample_tokens, uniforms
from etude.engine.local.slots import Prefix, SlotTable
from etude.engine.local.stats import COUNTERS
from etude.engine.protocol import SampleRequest
from etude.errors import ModelError
from etude.model.attention import use_etude_attention
from etude.model.tiny import tiny_model, tiny_tokenizer

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(state: int) -> int:
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def test_the_twin_is_splitmix64() -> None:
    """Published outputs for the state 1234567 (https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64)."""
    outputs = [mix((1234567 + (n + 1) * GOLDEN) & MASK) for n in range(5)]
    assert outputs == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.lists(st.tuples(st.integers(-(2**63), 2**65), st.integers(0, 2**31)), min_size=1, max_size=20))
def test_uniform_numbers_are_splitmix64_at_seed_and_position(pairs: list[tuple[int, int]]) -> None:
    seeds, positions = zip(*pairs, strict=True)
    expected = [(mix((mix(seed & MASK) + (position + 1) * GOLDEN) & MASK) >> 11) / 2**53 for seed, position in pairs]
    assert uniforms(seeds, positions).tolist() == expected
    assert all(0 <= number < 1 for number in expected)


def test_neighbouring_seeds_and_positions_are_independent() -> None:
    grid = np.array([uniforms([seed] * 100, range(100)) for seed in range(100)])
    assert stats.kstest(grid.ravel(), "uniform").pvalue > 0.01
    for first, second in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:])):
        assert stats.pearsonr(first.ravel(), second.ravel()).pvalue > 0.01


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_follow_the_distribution_under_the_temperature(temperature: float) -> None:
    logits = torch.tensor([1.0, -torch.inf, 0.0, 2.5, -1.0, 0.3])
    count = 20_000
    tokens, logprobs = sample_tokens(
        logits.expand(count, -1), [temperature] * count, uniforms(range(count), [7] * count)
    )
    probabilities = torch.softmax(logits.double() / temperature, dim=-1).numpy()
    seen = np.bincount(tokens.numpy(), minlength=6)
    assert seen[1] == 0
    possible = probabilities > 0
    assert stats.chisquare(seen[possible], probabilities[possible] * count).pvalue > 0.01
    np.testing.assert_allclose(logprobs.numpy(), np.log(probabilities[tokens.numpy()]), atol=1e-6)


def test_each_row_has_its_own_temperature_and_zero_is_greedy_under_temperature_one() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.5]] * 3)
    tokens, logprobs = sample_tokens(logits, [0.0, 1.0, 0.1], np.array([0.999, 0.0, 0.9]))
    assert tokens.tolist() == [1, 0, 1]
    expected = [torch.log_softmax(logits[0] / t, -1)[token] for t, token in ((1.0, 1), (1.0, 0), (0.1, 1))]
    torch.testing.assert_close(logprobs, torch.stack(expected))


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_interval_never_draw_an_impossible_token(uniform: float) -> None:
    logits = torch.full((1, 50_000), -torch.inf)
    logits[0, 100:40_000] = torch.randn(39_900, generator=torch.Generator().manual_seed(0))
    tokens, logprobs = sample_tokens(logits, [1.0], np.array([uniform]))
    assert tokens.item() == (100 if uniform == 0 else 39_999)
    assert torch.isfinite(logprobs).all()


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_an_error(broken: float) -> None:
    logits = torch.tensor([[0.0, 1.0], [0.0, broken]])
    with pytest.raises(ModelError, match="logits are not finite"):
        sample_tokens(logits, [1.0, 1.0], np.array([0.5, 0.5]))


def test_the_cache_grows_and_keeps_what_it_holds() -> None:
    cache = SlotCache(6, 110)
    generator = torch.Generator().manual_seed(0)
    cache.reserve(2, 10)
    states = [torch.randn(10, 3, 4, generator=generator) for _ in range(2)]
    slot, positions = torch.ones(10, dtype=torch.long), torch.arange(10)
    for layer in range(2):
        cache.write(layer, slot, positions, states[0] + layer, states[1] + layer)
    small = cache.nbytes
    cache.reserve(5, 100)
    cache.copy(1, 4, 7)
    for layer in range(2):
        for held, state in zip((cache.keys, cache.values), states, strict=True):
            assert torch.equal(held[layer][1, :, :10], (state + layer).transpose(0, 1))
            assert torch.equal(held[layer][4, :, :7], held[layer][1, :, :7])
            assert not held[layer][4, :, 7:].any()
            assert not held[layer][0].any()
    assert small == 2 * 2 * 2 * 64 * 3 * 4 * 4
    assert cache.nbytes == 2 * 2 * 5 * 128 * 3 * 4 * 4
    cache.reserve(6, 110)
    assert cache.nbytes == 2 * 2 * 6 * 128 * 3 * 4 * 4


def test_memory_is_what_the_rollouts_need_and_not_what_the_context_allows() -> None:
    model = tiny_model(tiny_tokenizer())
    use_etude_attention(model)
    core = EngineCore(model, max_slots=64, max_context=4096, version_of=lambda: 0)
    core.generate([SampleRequest(f"{i}", (1,) * 20, 5, frozenset()) for i in range(2)])
    assert core.cache_bytes == 2 * 2 * 2 * 64 * 2 * 16 * 4  # keys and values, layers, slots, positions, heads of 16


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3000)), min_size=1, max_size=40),
)
def test_every_turn_is_in_one_call_that_covers_it_and_calls_are_worth_their_cost(gaps: list[tuple[int, int]]) -> None:
    slots = np.cumsum([gap for gap, _ in gaps]).tolist()
    lengths = [length for _, length in gaps]
    blocks = split_blocks(slots, lengths)
    assert [turn for block in blocks for turn in range(block.first, block.last)] == list(range(len(slots)))
    for block in blocks:
        turns = range(block.first, block.last)
        assert (block.start, block.stop) == (slots[turns[0]], slots[turns[-1]] + 1)
        assert block.length == max(lengths[turn] for turn in turns)
        read = (block.stop - block.start) * block.length
        assert read <= sum(lengths[turn] for turn in turns) + (len(turns) - 1) * CALL_COST


def test_alike_turns_share_a_call_and_a_long_one_does_not_pad_the_others() -> None:
    assert len(split_blocks(range(64), [300 + i for i in range(64)])) == 1
    assert len(split_blocks([0, 1, 3, 4], [100] * 4)) == 1  # an idle slot in between is cheaper than a second call
    blocks = split_blocks(range(9), [10] * 4 + [2000] + [10] * 4)
    assert [(block.start, block.stop, block.length) for block in blocks] == [(0, 4, 10), (4, 5, 2000), (5, 9, 10)]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["take", "rest", "free"])), max_size=60))
@settings(max_examples=200)
def test_the_slot_table_is_the_model_of_it(events: list[tuple[str, str]]) -> None:
    """Against a plain model: busy slots stay, the lowest free one is taken first, then the one idle longest."""
    table, count = SlotTable(3, 8), 3
    holder: dict[int, str] = {}
    busy: set[int] = set()
    idle: list[int] = []  # the longest idle first
    for rollout, event in events:
        own = next((slot for slot, name in holder.items() if name == rollout), None)
        if event == "take" and own not in busy:
            free = [slot for slot in range(count) if slot not in holder]
            expected = own if own is not None else (free or idle or [None])[0]
            assert table.take(rollout) == (None if expected is None else (expected, own is not None))
            if expected is not None:
                holder[expected] = rollout
                busy.add(expected)
                idle = [slot for slot in idle if slot != expected]
        elif event == "rest" and own in busy:
            table.rest(own)
            busy.discard(own)
            idle.append(own)
        elif event == "free" and own not in busy:
            table.free(rollout)
            if own is not None:
                del holder[own]
                idle.remove(own)


def test_prefixes_are_found_in_the_own_slot_first_and_never_in_stale_ones() -> None:
    table = SlotTable(3, 16)
    prompt = np.arange(10, dtype=np.int32)
    for slot, (length, version) in enumerate([(10, 0), (6, 1), (4, 1)]):
        table.take(f"r{slot}")
        table.begin(slot, prompt[:length], Prefix(slot, 0, True), version)
        table.computed[slot] = length
    assert table.find_prefix(2, True, prompt, 1) == Prefix(1, 6, ready=True)
    assert table.find_prefix(0, True, prompt, 1) == Prefix(0, 9, ready=True)  # its own, across versions
    assert table.find_prefix(0, False, prompt, 1) == Prefix(1, 6, ready=True)
    assert table.find_prefix(2, True, prompt[:5], 1) == Prefix(2, 4, ready=True)  # the last token must run
    assert table.find_prefix(2, True, prompt[:1], 1) == Prefix(2, 0, ready=True)
    table.computed[1] = 5
    assert table.find_prefix(2, True, prompt, 1) == Prefix(1, 6, ready=False)


def test_stats_are_taken_once() -> None:
    counts = EngineStats(prefill_tokens=3, seconds=0.5)
    assert counts.take() == dict.fromkeys(COUNTERS, 0) | {"prefill_tokens": 3, "seconds": 0.5}
    counts.prefill_tokens += 4
    assert counts.take() == dict.fromkeys(COUNTERS, 0) | {"prefill_tokens": 4}


def test_a_failed_core_starts_afresh_after_reset() -> None:
    model = tiny_model(tiny_tokenizer())
    use_etude_attention(model)
    core = EngineCore(model, max_slots=2, max_context=64, version_of=lambda: 0)
    request = SampleRequest("r", (1, 2, 3), 4, frozenset(), seed=1)
    [expected] = core.generate([request])
    with torch.no_grad():
        weight = model.get_output_embeddings().weight
        kept = weight.clone()
        nn.init.constant_(weight, torch.nan)
    with pytest.raises(ModelError, match="logits are not finite"):
        core.generate([request])
    core.reset()
    with torch.no_grad():
        weight.copy_(kept)
    assert core.generate([request]) == [expected]
