"""The local engine beside transformers' `generate`, on this processor: the same model, the same prompts, in one run.

    python benchmarks/engine_cpu.py [--rows 64] [--prompt 64] [--tokens 128] [--threads 2] [--rounds 3]

The engine also gives log-probabilities, which `generate` is not asked for. Best of the rounds, which alternate.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from etude.engine.local import EngineCore
from etude.engine.protocol import SampleRequest
from etude.model.attention import use_etude_attention


def small_llama() -> LlamaForCausalLM:
    """2.4 million weights: the size that learns on a laptop."""
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=192,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


def run_generate(model: LlamaForCausalLM, prompts: torch.Tensor, tokens: int) -> int:
    settings = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0)
    with torch.inference_mode():
        output = model.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=settings)
    return int(output.numel() - prompts.numel())


def run_engine(core: EngineCore, prompts: torch.Tensor, tokens: int) -> int:
    requests = [
        SampleRequest(f"{row:04d}", tuple(prompt), tokens, frozenset(), seed=row)
        for row, prompt in enumerate(prompts.tolist())
    ]
    sampled = sum(len(sample.tokens) for sample in core.generate(requests))
    for request in requests:
        core.close(request.rollout)
    return sampled


def speed(run: Callable[[], int]) -> float:
    began = time.perf_counter()
    return run() / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"rows": 64, "prompt": 64, "tokens": 128, "threads": 2, "rounds": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    reference = small_llama()
    model = copy.deepcopy(reference)
    use_etude_attention(model)
    core = EngineCore(model, max_slots=given.rows, max_context=given.prompt + given.tokens, version_of=lambda: 0)
    prompts = torch.randint(0, reference.config.vocab_size, (given.rows, given.prompt))
    best = {"generate": 0.0, "engine": 0.0}
    for _ in range(given.rounds):
        best["generate"] = max(best["generate"], speed(lambda: run_generate(reference, prompts, given.tokens)))
        best["engine"] = max(best["engine"], speed(lambda: run_engine(core, prompts, given.tokens)))

    print(
        f"{reference.num_parameters():,} weights, {given.rows} rows, {given.prompt} + {given.tokens} tokens, "
        f"{given.threads} threads"
    )
    print(f"transformers generate  {best['generate']:8,.0f} tok/s")
    print(f"local engine           {best['engine']:8,.0f} tok/s   {best['engine'] / best['generate']:.2f} x")


if __name__ == "__main__":
    main()
