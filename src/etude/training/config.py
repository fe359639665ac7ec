"""The configuration of a run: YAML, every field documented, every field overridable as `key.path=value`.

`load_config` refuses what cannot work before any model loads; the descriptions here are what `--fields` prints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from etude.engine.remote.settings import MaxTokensField, check_base_url
from etude.errors import ConfigError
from etude.training.health.rules import check_names

LossName = Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class EnvironmentConfig(_Section):
    entry: str = Field(
        description="What to play: a recipe's name (email_search), 'package.module:function' or 'file.py:function'; "
        "the function returns an Environment."
    )
    args: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments of that function: data, limits, reward ..."
    )


class LoraConfig(_Section):
    rank: int = Field(0, ge=0, description="Rank of the LoRA adapter; 0 trains all weights.")
    alpha: float = Field(16.0, gt=0, description="LoRA's alpha: the adapter is scaled by alpha / rank.")
    targets: Literal["all-linear", "attention"] = Field("all-linear", description="Which linear layers get an adapter.")


class RemoteConfig(_Section):
    api_key_env: str | None = Field(
        None,
        description="NAME of the environment variable that holds the key. Default OPENAI_API_KEY where the endpoint is "
        "api.openai.com or on this machine, and no key for other hosts.",
    )
    requests_per_minute: float | None = Field(None, gt=0, description="At most so many; default no limit.")
    timeout_s: float = Field(120.0, gt=0, le=3600, description="Seconds that one try of a request may take.")
    max_retries: int = Field(5, ge=0, le=20, description="Further tries of a request (after 429, 5xx, broken replies).")
    cache: bool = Field(True, description="Keep replies in WORKSPACE/cache, and ask for none of them twice.")
    max_tokens_field: MaxTokensField = Field(
        "max_tokens",
        description="What the endpoint calls the limit of a turn's tokens; newer OpenAI models want "
        "max_completion_tokens.",
    )
    price_per_million_prompt_tokens: float | None = Field(None, ge=0, description="USD; both prices give costs.")
    price_per_million_completion_tokens: float | None = Field(None, ge=0, description="USD.")
    extra_body: dict[str, Any] = Field(
        default_factory=dict, description="Fields added to every request; null takes one out, e.g. {temperature: null}."
    )


class ModelConfig(_Section):
    name: str = Field(
        description="A folder, a .gguf file, a hub id, 'run:RUN' (the best checkpoint of an earlier run), "
        "'etude-demo' (the small model that comes with Etude), or 'tiny-random' (a toy for trying things). With "
        "model.endpoint: the endpoint's name of the model."
    )
    endpoint: str | None = Field(
        None,
        description="Base URL of an OpenAI-compatible endpoint, e.g. http://127.0.0.1:8000/v1, which is evaluated "
        "instead of local weights.",
    )
    remote: RemoteConfig = Field(RemoteConfig(), description="How the endpoint is asked.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Type of the weights. float32 on a CPU.")
    device: Literal["cpu"] = Field("cpu", description="Where it runs.")
    lora: LoraConfig = Field(LoraConfig(), description="Adapter training.")
    chat: str = Field(
        "auto",
        description="Chat format: auto, hermes (ChatML, which SmolLM2 and Qwen know), compact (the bundled model's),"
        " or template (the model's own).",
    )

    @field_validator("endpoint")
    @classmethod
    def _base_url(cls, text: str | None) -> str | None:
        return None if text is None else check_base_url(text)


class SamplingConfig(_Section):
    groups_per_step: int = Field(12, ge=1, description="Scenarios a step.")
    rollouts_per_group: int = Field(4, ge=2, description="Attempts at each scenario; their spread is what teaches.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature, which the loss assumes too.")
    staleness: int = Field(
        0, ge=0, description="η: how many steps old a sampled token may be when it is trained. 0 is on-policy."
    )
    max_concurrent: int = Field(64, ge=1, description="Rollouts that run at once, and slots of the local engine.")
    max_retries: int = Field(3, ge=0, description="How often a rollout that faulted is started again.")


class LearningConfig(_Section):
    loss: LossName = Field("dapo", description="Preset of the objective; LOSSES in docs/losses.md says what each is.")
    loss_overrides: dict[str, Any] = Field(
        default_factory=dict, description="Fields of LossConfig that differ from it."
    )
    advantage: Literal["mean", "grpo", "rloo"] = Field("mean", description="How rewards of a group become advantages.")
    shuffle_rewards: bool = Field(
        False,
        description="A control: shuffle the rewards within each group, so that they teach nothing. What improves even "
        "so was not learned from reward.",
    )
    lr: float = Field(1e-5, gt=0, description="Peak learning rate of AdamW.")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="Learning rate after warm-up.")
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up of the learning rate.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's betas.")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's weight decay.")
    grad_clip: float = Field(1.0, gt=0, description="Largest norm of the gradient.")
    max_tokens_per_microbatch: int = Field(8192, ge=16, description="Tokens of one packed forward and backward pass.")


class SftConfig(_Section):
    traces: str | None = Field(
        None, description="JSONL of conversations ({'messages': [...], 'tools': [...]}), or 'run:RUN' for its rollouts."
    )
    min_reward: float | None = Field(None, description="From a run: keep rollouts with at least this reward.")
    epochs: int = Field(1, ge=1, description="Passes over the traces.")
    rows_per_step: int = Field(16, ge=1, description="Conversations a step.")
    max_tokens_per_row: int = Field(4096, ge=16, description="Longer conversations are dropped, and counted.")


class TrainingConfig(_Section):
    steps: int = Field(100, ge=1, description="Optimizer steps in all (sft: at most).")
    zero_variance: Literal["drop", "refill"] = Field(
        "drop",
        description="Groups whose rewards are all equal teach nothing: 'drop' trains the step without them (they still "
        "count in its denominators), 'refill' plays others until the step is full.",
    )
    refill_limit: float = Field(3.0, ge=1, description="With refill: at most this many times groups_per_step a step.")
    max_fault_rate: float = Field(
        0.5, gt=0, le=1, description="Above this share of faulted rollouts (over 50) the run stops: the breaker."
    )
    checkpoint_every: int = Field(1, ge=1, description="Steps between checkpoints; the last step always has one.")
    keep_best: int = Field(3, ge=1, description="Checkpoints kept by validation reward, besides the last.")
    eval_every: int = Field(0, ge=0, description="Steps between validations; 0 is never. Step 0 is validated too.")
    eval_scenarios: int | None = Field(None, ge=1, description="Validation scenarios used; default all.")
    eval_attempts: int = Field(1, ge=1, description="Attempts at each of them.")
    eval_temperature: float = Field(0.0, ge=0, description="0 is greedy.")
    keep_rollouts: Literal["all", "none"] | int = Field(
        "all", description="How long trajectories are kept: all, none, or those of the last N steps. Rewards stay."
    )


class EvalConfig(_Section):
    split: str = Field("validation", description="Which scenarios.")
    scenarios: int | None = Field(None, ge=1, description="How many of them; default all.")
    attempts: int = Field(1, ge=1, description="Attempts at each; more than one gives pass@k.")
    temperature: float = Field(0.0, ge=0, description="0 is greedy.")
    policy: str = Field(
        "model",
        description="'model', or one of the environment's scripted policies (email_search: scripted, guided).",
    )


class BaselineConfig(_Section):
    split: str = Field("train", description="Which scenarios: those that would be trained on.")
    scenarios: int | None = Field(100, ge=2, description="How many of them, from the first; null is all.")
    attempts: int = Field(8, ge=1, description="Attempts at each, as many as a group would have.")
    temperature: float = Field(1.0, ge=0, description="As in training: without chance there is no variance.")


class HealthConfig(_Section):
    enabled: bool = Field(True, description="Look for what goes wrong after every step, and say so (docs/health.md).")
    held_out: str | None = Field(
        "answer_correct",
        description="The environment's metric that says whether an attempt was right; the train reward is compared with"
        " it. It must not be what is rewarded, or hacking one hacks both.",
    )
    pause_on: list[str] = Field(
        default_factory=list, description="Rules whose alert pauses the run; --resume goes on. 'all' is every rule."
    )
    thresholds: dict[str, dict[str, float]] = Field(
        default_factory=dict,
        description="Thresholds that differ from the rules' own, by rule and name: {turns_rising: {rise: 1.0}}.",
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        check_names(self.pause_on, self.thresholds)
        return self


class RunConfig(_Section):
    """Everything that decides a run. Saved in the store and in the run's folder."""

    environment: EnvironmentConfig = Field(description="What is played.")
    model: ModelConfig = Field(description="The model that learns or is measured.")
    name: str = Field("", description="A name for people.")
    seed: int = Field(0, ge=0, description="Everything random derives from it.")
    deterministic: bool = Field(
        False, description="Schedule in lock-step: the same run gives the same weights, bit for bit (CPU)."
    )
    threads: int | None = Field(None, ge=1, description="CPU threads of torch; default all cores.")
    workspace: str = Field(".etude", description="Folder of the store and of the runs.")
    sampling: SamplingConfig = Field(SamplingConfig(), description="How rollouts are made.")
    learning: LearningConfig = Field(LearningConfig(), description="How weights are changed.")
    training: TrainingConfig = Field(TrainingConfig(), description="The loop.")
    health: HealthConfig = Field(HealthConfig(), description="Watching the run.")
    sft: SftConfig = Field(SftConfig(), description="Supervised warm start (etude sft).")
    eval: EvalConfig = Field(EvalConfig(), description="Measuring (etude eval).")
    baseline: BaselineConfig = Field(BaselineConfig(), description="Measuring before training (etude baseline).")

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.learning.warmup_steps > self.training.steps:
            raise ValueError("learning.warmup_steps is larger than training.steps: the peak would never be reached")
        if self.learning.schedule != "constant" and self.learning.warmup_steps >= self.training.steps:
            raise ValueError(
                f"learning.schedule {self.learning.schedule!r} needs steps after the warm-up: set "
                f"learning.warmup_steps ({self.learning.warmup_steps}) below training.steps ({self.training.steps})"
            )
        training = self.training
        if training.eval_every % training.checkpoint_every:
            raise ValueError(
                f"training.eval_every is {training.eval_every}, which is not a multiple of training.checkpoint_every "
                f"({training.checkpoint_every}): what is validated in between is not saved, so the best would be lost"
            )
        return self

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, or a recipe's by its name (or start from nothing), and apply `key.path=value` overrides, whose
    values are YAML.

    Raises ConfigError naming each field that is wrong, with what it may be."""
    data: dict[str, Any] = {}
    if path is not None:
        data = _read_yaml(_file_of(Path(path)))
    for override in overrides:
        _apply(data, override)
    return parse_config(data)


def parse_config(data: Mapping[str, Any]) -> RunConfig:
    """Raises ConfigError listing every mistake, one a line."""
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        lines = []
        for item in error.errors():
            where = ".".join(str(part) for part in item["loc"]) or "configuration"
            known = _known_fields(item["loc"]) if item["type"] == "extra_forbidden" else ""
            lines.append(f"  {where}: {item['msg'].removeprefix('Value error, ')}{known}")
        raise ConfigError("the configuration cannot work:\n" + "\n".join(lines)) from None


def _file_of(path: Path) -> Path:
    """The file itself, or the configuration that a recipe of this name ships with."""
    recipe = Path(str(resources.files("etude.recipes"))) / path.name / "config.yaml"
    return recipe if not path.exists() and len(path.parts) == 1 and recipe.exists() else path


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration file {path}, and no recipe of that name with one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, not {type(data).__name__}")
    return data


def _apply(data: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"cannot read {override!r}: write overrides as key.path=value, e.g. training.steps=20")
    try:
        value = yaml.safe_load(text) if text else None
    except yaml.YAMLError as error:
        raise ConfigError(f"cannot read the value of {override!r} as YAML: {error}") from error
    *parents, last = key.split(".")
    target = data
    for parent in parents:
        child = target.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"cannot set {key}: {parent} is a value, not a section")
        target = child
    if isinstance(value, str) and _is_number(value):
        value = float(value)  # YAML 1.1 reads 1e-5 as text
    target[last] = value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _known_fields(location: Sequence[int | str]) -> str:
    section: Any = RunConfig
    for part in location[:-1]:
        field = section.model_fields.get(part)
        section = field.annotation if field else None
        if section is None or not hasattr(section, "model_fields"):
            return ""
    return " (there are: " + ", ".join(section.model_fields) + ")"


def describe_fields(section: type[BaseModel] = RunConfig, prefix: str = "") -> list[tuple[str, str, str]]:
    """(key path, default, description) of every field, in order: what `--fields` prints."""
    rows: list[tuple[str, str, str]] = []
    for name, field in section.model_fields.items():
        path = f"{prefix}{name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            rows += describe_fields(kind, f"{path}.")
            continue
        default = "required" if field.is_required() else repr(field.get_default(call_default_factory=True))
        rows.append((path, default, field.description or ""))
    return rows
