"""What a client has asked for, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ClientStats:
    """requests: sent over the network, retries among them. replies: those that were whole. failures: requests given up
    after all tries. prompt_tokens, completion_tokens, spent: of replies, not of cache hits; spent in USD.
    without_usage: replies that told no token counts. cache_errors: replies that could not be kept. latencies: seconds
    from sending a request to its whole reply, of replies."""

    requests: int = 0
    retries: int = 0
    replies: int = 0
    failures: int = 0
    cache_hits: int = 0
    cache_errors: int = 0
    without_usage: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    spent: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def figures(self, priced: bool) -> dict[str, float]:
        """For the store. priced: whether costs mean anything."""
        made = {
            "endpoint/requests": float(self.requests),
            "endpoint/retries": float(self.retries),
            "endpoint/failures": float(self.failures),
            "endpoint/cache_hits": float(self.cache_hits),
            "endpoint/prompt_tokens": float(self.prompt_tokens),
            "endpoint/completion_tokens": float(self.completion_tokens),
        }
        if self.latencies:
            ordered = sorted(self.latencies)
            made["endpoint/latency_s"] = sum(ordered) / len(ordered)
            made["endpoint/latency_p95_s"] = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        if priced:
            made["cost/usd"] = self.spent
        return made

    def problems(self) -> list[str]:
        """What makes the figures worth less, in words for a person."""
        told = []
        if self.without_usage:
            told.append(
                f"{self.without_usage} of {self.replies} replies told no token counts: the endpoint's totals and costs "
                "are too low, and token limits went by four characters a token"
            )
        if self.cache_errors:
            told.append(f"{self.cache_errors} replies could not be kept in the cache: another run will ask again")
        return told
