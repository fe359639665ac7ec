"""What decides a pretraining; the defaults made the bundled model."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from etude.errors import ConfigError

FILE = "settings.json"


@dataclass(frozen=True, slots=True)
class PretrainSettings:
    """Traces: `companies` companies (a shard each) of `inboxes` inboxes with `mails_per_inbox` mails; of each of the
    `questions`, `rounds` attempts, by searchers of all `skills` in turn (see `clumsy_traces`). The lower the skills,
    the more is left to reinforcement.

    Model: a Llama of `layers` layers of width `hidden`, `vocab_size` tokens (tokenizer_companies: see `tokenizer.py`).

    Training: `tokens` tokens, in steps of about `tokens_per_step`; AdamW with a linear warm-up and a cosine down to 0.
    shown_weight: how much a token that the model reads (prompt, hits, mail) counts, where one that it writes counts 1.

    Plays: `plays` times on the way and at the end, `play_scenarios` questions (on the way a third) in a company of
    names that no trace has.
    """

    seed: int = 0
    companies: int = 360
    inboxes: int = 2
    mails_per_inbox: int = 1500
    questions: int = 600
    rounds: int = 3
    skills: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4)
    tokenizer_companies: int = 300
    vocab_size: int = 1536
    layers: int = 5
    hidden: int = 192
    heads: int = 6
    kv_heads: int = 3
    intermediate: int = 512
    tokens: float = 7.5e8
    tokens_per_step: int = 65536
    lr: float = 3e-3
    warmup_steps: int = 300
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    shown_weight: float = 0.1
    plays: int = 2
    play_scenarios: int = 400
    play_mails_per_inbox: int = 2500

    def save(self, folder: Path) -> None:
        """Write into the folder, or see that what is there was made with the same settings: traces of one and a state
        of another would fit without notice. Raises ConfigError where they differ."""
        file = folder / FILE
        mine = json.loads(json.dumps(dataclasses.asdict(self)))
        if file.is_file():
            theirs = json.loads(file.read_text())
            different = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
            if different:
                raise ConfigError(f"{folder} was begun with other {', '.join(different)}: choose another folder")
            return
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(mine, indent=1) + "\n")
