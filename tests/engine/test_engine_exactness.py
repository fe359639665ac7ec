"""What the engine samples, against a plain forward pass of transformers: whatever runs beside it, in whatever slot."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.families import FAMILIES, VOCAB, model_pair, plain_logits
from torch import nn

from etude.engine.local import EngineCore
from etude.engine.local.sampler import uniforms
from etude.engine.local.turn import Turn
from etude.engine.protocol import Sample, SampleRequest

TOLERANCE = 1e-4
CONTEXT = 160
STOP = frozenset({3, 4})


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module]:
    return model_pair(request.param)


def check_sample(reference: nn.Module, request: SampleRequest, sample: Sample) -> None:
    """The slow twin: one forward pass over the whole sequence, and the inverse of its distribution function."""
    start = len(request.prompt)
    logits = plain_logits(reference, [*request.prompt, *sample.tokens])[start - 1 : -1]
    logprobs = torch.log_softmax(logits / (request.temperature or 1.0), dim=-1)
    for index, token in enumerate(sample.tokens):
        row = logprobs[index]
        assert abs(float(row[token]) - sample.logprobs[index]) < TOLERANCE
        if request.temperature == 0:
            assert float(row.max() - row[token]) < TOLERANCE
        else:
            [uniform] = uniforms([request.seed], [start + index])
            above = float(row[: token + 1].exp().sum())
            assert above - float(row[token].exp()) - TOLERANCE < uniform < above + TOLERANCE
    stopped = sample.tokens[-1] in request.stop
    assert sample.finish == ("stop" if stopped else "length")
    assert not request.stop.intersection(sample.tokens[:-1])
    assert stopped or len(sample.tokens) == min(request.max_tokens, CONTEXT - start)


@dataclass
class Player:
    """One rollout of some turns. pause: steps of the engine until its next turn, as if a tool ran."""

    name: str
    held: list[int]
    turns: int
    pause: int
    turn: Turn | None = None
    finished: list[tuple[SampleRequest, Sample]] = field(default_factory=list)


def play(core: EngineCore, players: list[Player], rng: random.Random) -> None:
    """Rollouts come, sample, wait, extend or rewrite their prompt, get cancelled, and go, while others decode."""
    while players or core.busy:
        for player in list(players):
            if player.turn is not None and player.turn.sample is not None:
                request, sample = player.turn.request, player.turn.sample
                player.finished.append((request, sample))
                player.held = [*request.prompt, *sample.tokens, *rng.choices(range(VOCAB), k=rng.randint(1, 6))]
                player.turn, player.turns, player.pause = None, player.turns - 1, rng.choice([0, 0, 1, 7])
                if rng.random() < 0.1:  # the template rewrote history
                    player.held[rng.randrange(len(player.held))] = rng.randrange(VOCAB)
            elif player.turn is not None and rng.random() < 0.01:
                core.cancel(player.turn)
                player.turn = None
            if player.turns == 0 or len(player.held) >= CONTEXT:
                core.close(player.name)
                players.remove(player)
            elif player.turn is None:
                player.pause -= 1
                if player.pause < 0:
                    player.turn = core.submit(
                        SampleRequest(
                            rollout=player.name,
                            prompt=tuple(player.held),
                            max_tokens=rng.randint(1, 12),
                            stop=STOP,
                            temperature=rng.choice([0.0, 0.6, 1.0, 1.5]),
                            seed=rng.getrandbits(64),
                        )
                    )
        core.step()


def check_random_play(
    pair: tuple[nn.Module, nn.Module], seed: int, slots: int, rollouts: int, prefill_tokens: int
) -> None:
    model, reference = pair
    rng = random.Random(seed)
    prompts = [rng.choices(range(VOCAB), k=rng.randint(1, 60)) for _ in range(3)]
    players = [
        Player(f"r{i}", list(rng.choice(prompts)), turns=rng.randint(1, 3), pause=rng.choice([0, 0, 2, 9]))
        for i in range(rollouts)
    ]
    everybody = list(players)
    play(
        EngineCore(model, max_slots=slots, max_context=CONTEXT, version_of=lambda: 0, prefill_tokens=prefill_tokens),
        players,
        rng,
    )
    for player in everybody:
        for request, sample in player.finished:
            check_sample(reference, request, sample)


PLAYS = {
    "seed": st.integers(0, 2**32),
    "slots": st.integers(1, 6),
    "rollouts": st.integers(2, 7),
    "prefill_tokens": st.sampled_from([1, 7, 32, 256]),
}


@given(**PLAYS)
@settings(max_examples=3, deadline=None)
def test_samples_equal_a_plain_forward_pass_whatever_else_runs(
    pair: tuple[nn.Module, nn.Module], seed: int, slots: int, rollouts: int, prefill_tokens: int
) -> None:
    check_random_play(pair, seed, slots, rollouts, prefill_tokens)


@pytest.mark.acceptance
@given(**PLAYS)
@settings(max_examples=60, deadline=None)
def test_samples_equal_a_plain_forward_pass_whatever_else_runs_long(
    pair: tuple[nn.Module, nn.Module], seed: int, slots: int, rollouts: int, prefill_tokens: int
) -> None:
    check_random_play(pair, seed, slots, rollouts, prefill_tokens)


def request_for(rollout: str, prompt: list[int], max_tokens: int = 12, **options: object) -> SampleRequest:
    return SampleRequest(rollout, tuple(prompt), max_tokens, frozenset(), **options)  # type: ignore[arg-type]


def make_core(model: nn.Module, slots: int = 8, version_of: Callable[[], int] = lambda: 0) -> EngineCore:
    return EngineCore(model, max_slots=slots, max_context=CONTEXT, version_of=version_of)


def some_tokens(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=count)


@pytest.fixture(scope="module")
def llama() -> tuple[nn.Module, nn.Module]:
    return model_pair("llama")


def test_a_request_gives_the_same_tokens_alone_and_in_a_batch(llama: tuple[nn.Module, nn.Module]) -> None:
    model, _ = llama
    requests = [request_for(f"r{i}", some_tokens(5 + 3 * i, seed=i), seed=i) for i in range(8)]
    together = make_core(model).generate(requests)
    for request, sample in zip(requests, together, strict=True):
        [alone] = make_core(model).generate([request])
        assert alone.tokens == sample.tokens
        assert alone.logprobs == pytest.approx(sample.logprobs, abs=TOLERANCE)
    assert len({sample.tokens for sample in together}) == 8


def test_the_order_of_requests_changes_no_bit(llama: tuple[nn.Module, nn.Module]) -> None:
    model, _ = llama
    requests = [request_for(f"r{i}", some_tokens(5 + 3 * (i % 4), seed=i % 4), seed=i) for i in range(8)]
    samples = dict(zip(requests, make_core(model, slots=3).generate(requests), strict=True))
    random.Random(1).shuffle(requests)
    assert samples == dict(zip(requests, make_core(model, slots=3).generate(requests), strict=True))


def test_a_group_s_prompt_is_prefilled_once(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    core, prompt = make_core(model), some_tokens(50)
    requests = [request_for(f"r{i}", prompt, seed=i, group="g") for i in range(4)]
    for request, sample in zip(requests, core.generate(requests), strict=True):
        check_sample(reference, request, sample)
    assert core.stats.prefill_tokens == 50 + 3  # the last prompt token runs for each: it gives the first logits
    assert core.stats.shared_tokens == 3 * 49


def test_a_sibling_that_comes_while_the_first_decodes_shares_its_prompt(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    core, prompt = make_core(model), some_tokens(50)
    core.submit(request_for("first", prompt, 100))
    for _ in range(20):
        core.step()
    late = request_for("late", [*prompt, 1, 2])
    turn = core.submit(late)
    while turn.sample is None:
        core.step()
    check_sample(reference, late, turn.sample)
    assert (core.stats.prefill_tokens, core.stats.shared_tokens) == (50 + 2, 50)


def test_a_sibling_whose_elder_is_cancelled_prefills_for_itself(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    prompt = some_tokens(50)
    core = EngineCore(model, max_slots=4, max_context=CONTEXT, version_of=lambda: 0, prefill_tokens=10)
    elder, younger = core.submit(request_for("a", prompt)), core.submit(request_for("b", prompt))
    core.step()
    core.cancel(elder)
    while younger.sample is None:
        core.step()
    check_sample(reference, younger.request, younger.sample)
    assert core.stats.prefill_tokens == 50  # what the elder had computed was copied


def test_the_next_turn_prefills_only_what_is_new(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    core, prompt = make_core(model), some_tokens(40)
    [first] = core.generate([request_for("r", prompt)])
    core.stats.take()
    following = request_for("r", [*prompt, *first.tokens, *some_tokens(5, seed=1)])
    [sample] = core.generate([following])
    check_sample(reference, following, sample)
    counts = core.stats.take()
    assert counts["kept_tokens"] == 40 + 12 - 1
    assert counts["prefill_tokens"] == 1 + 5  # the last sampled token had not been fed yet


def test_a_rewritten_prompt_is_prefilled_from_where_it_differs(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    core, prompt = make_core(model), some_tokens(40)
    core.generate([request_for("r", prompt)])
    core.stats.take()
    rewritten = request_for("r", [*prompt[:25], (prompt[25] + 1) % VOCAB, *prompt[26:]])
    [sample] = core.generate([rewritten])
    check_sample(reference, rewritten, sample)
    counts = core.stats.take()
    assert (counts["kept_tokens"], counts["prefill_tokens"]) == (25, 15)


def test_one_slot_serves_many_rollouts_and_counts_what_it_evicts(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    core = make_core(model, slots=1)
    for turn in range(2):
        requests = [request_for(f"r{i}", some_tokens(20 + turn, seed=i), seed=turn) for i in range(3)]
        for request, sample in zip(requests, core.generate(requests), strict=True):
            check_sample(reference, request, sample)
    assert core.stats.evictions == 5


def test_the_least_recently_used_slot_is_evicted(llama: tuple[nn.Module, nn.Module]) -> None:
    core = make_core(llama[0], slots=2)
    for rollout in ("a", "b", "a", "c"):  # c takes b's slot
        core.generate([request_for(rollout, some_tokens(20, seed=ord(rollout)))])
    core.stats.take()
    core.generate([request_for("a", some_tokens(20, seed=ord("a")))])
    counts = core.stats.take()
    assert (counts["evictions"], counts["kept_tokens"]) == (0, 19)


def test_closing_frees_the_slot(llama: tuple[nn.Module, nn.Module]) -> None:
    core = make_core(llama[0], slots=1)
    for rollout in ("a", "b"):
        core.generate([request_for(rollout, some_tokens(20))])
        core.close(rollout)
    assert core.stats.evictions == 0
    assert core.stats.shared_tokens == core.stats.kept_tokens == 0


def test_tokens_carry_the_version_that_sampled_them_and_new_rollouts_share_no_stale_cache() -> None:
    model, reference = model_pair("llama")
    version, prompt = 0, some_tokens(50)
    core = make_core(model, version_of=lambda: version)
    running = core.submit(request_for("running", prompt, 10))
    for _ in range(4):
        core.step()
    with torch.no_grad():
        for changed, other in zip(model.parameters(), reference.parameters(), strict=True):
            changed.mul_(1.1)
            other.mul_(1.1)
    version = 5
    fresh = core.submit(request_for("fresh", prompt, 10))
    while core.busy:
        core.step()
    assert running.sample is not None
    assert running.sample.versions == (0,) * 4 + (5,) * 6
    assert fresh.sample is not None
    assert fresh.sample.versions == (5,) * 10
    check_sample(reference, fresh.request, fresh.sample)
    assert (core.stats.prefill_tokens, core.stats.shared_tokens) == (100, 0)


def test_decoding_goes_on_while_a_long_prompt_is_prefilled(llama: tuple[nn.Module, nn.Module]) -> None:
    core = EngineCore(llama[0], max_slots=2, max_context=CONTEXT, version_of=lambda: 0, prefill_tokens=10)
    short = core.submit(request_for("short", some_tokens(10), 30))
    core.step()
    long = core.submit(request_for("long", some_tokens(100, seed=1)))
    for step in range(1, 10):
        core.step()
        assert (len(short.tokens), len(long.tokens)) == (1 + step, 0)
    core.step()
    assert (len(short.tokens), len(long.tokens)) == (11, 1)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (request_for("r", []), "has 0 tokens"),
        (request_for("r", [1] * CONTEXT), "has 160 tokens; the engine's context of 160 takes 1 to 159"),
        (request_for("r", [1, VOCAB]), "outside of the vocabulary of 61"),
        (request_for("r", [-1]), "outside of the vocabulary"),
        (request_for("r", [1], 0), "max_tokens is 0"),
        (request_for("r", [1], temperature=-0.5), "temperature is -0.5"),
    ],
)
def test_requests_that_cannot_run_are_refused(
    llama: tuple[nn.Module, nn.Module], request_: SampleRequest, message: str
) -> None:
    core = make_core(llama[0])
    with pytest.raises(ValueError, match=message):
        core.submit(request_)
    assert not core.busy


def test_a_sample_ends_where_the_context_ends(llama: tuple[nn.Module, nn.Module]) -> None:
    model, reference = llama
    request = request_for("r", some_tokens(CONTEXT - 3), 50)
    [sample] = make_core(model).generate([request])
    assert (len(sample.tokens), sample.finish) == (3, "length")
    check_sample(reference, request, sample)


def test_two_requests_of_one_rollout_are_refused(llama: tuple[nn.Module, nn.Module]) -> None:
    with pytest.raises(ValueError, match="two requests of one rollout"):
        make_core(llama[0]).generate([request_for("r", [1]), request_for("r", [2])])
