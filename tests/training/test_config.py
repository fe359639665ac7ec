"""The configuration: every field documented and overridable, every mistake named at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import ConfigError
from etude.training.config import describe_fields, load_config, parse_config

ENTRY = "environment={entry: email_search}"
MODEL = "model={name: tiny-random}"


def test_every_field_has_a_description_and_can_be_set_on_the_command_line() -> None:
    rows = describe_fields()
    assert all(description for _, _, description in rows)
    config = load_config(None, [ENTRY, MODEL]).model_dump()
    for path, _, _ in rows:
        value = config
        for part in path.split("."):
            value = value[part]
        if path not in ("environment.entry", "model.name"):
            again = load_config(
                None, [ENTRY, MODEL, f"{path}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}"]
            )
            assert again == load_config(None, [ENTRY, MODEL]), path


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("environment: {entry: email_search}\nmodel: {name: tiny-random}\nlearning: {lr: 0.001}\n")
    config = load_config(file, ["learning.lr=1e-5", "sampling.groups_per_step=3", "environment.args.database=x.db"])
    assert config.learning.lr == 1e-5
    assert config.sampling.groups_per_step == 3
    assert config.environment.args == {"database": "x.db"}


def test_a_saved_configuration_is_the_same_configuration(tmp_path: Path) -> None:
    config = load_config(
        None, [ENTRY, MODEL, "learning.betas=[0.8, 0.9]", "training.keep_rollouts=5", "model.lora.rank=4"]
    )
    file = tmp_path / "saved.yaml"
    file.write_text(config.to_yaml())
    assert load_config(file) == config
    assert parse_config(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.stepz=3", ENTRY], r"training\.stepz.*there are: steps,"),
        (["training.steps=0", ENTRY], r"training\.steps: .*greater than or equal to 1"),
        (["sampling.rollouts_per_group=1", ENTRY], "rollouts_per_group"),
        (["learning.loss=ppo", ENTRY], r"learning\.loss: .*'grpo'"),
        (["training.steps", ENTRY], r"write overrides as key\.path=value"),
        (["seed=1", "environment=3"], "environment"),
        (["environment.entry=a", "environment.entry.x=2"], "is a value, not a section"),
        ([ENTRY, MODEL, "learning.warmup_steps=11", "training.steps=10"], "peak would never be reached"),
        ([ENTRY, MODEL, "training.eval_every=4", "training.checkpoint_every=3"], "not a multiple of .*the best would"),
        ([ENTRY, "training.steps=[1"], "as YAML"),
        ([], r"environment: Field required\n  model: Field required"),
    ],
)
def test_mistakes_are_named(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, overrides)


def test_all_mistakes_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, [ENTRY, "training.steps=0", "learning.lr=-1", "sampling.temperature=0"])
    assert all(name in str(error.value) for name in ("training.steps", "learning.lr", "sampling.temperature"))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a: [", "not valid YAML"), (b"- 1", "must hold a mapping"), (b"\xff\xfe\x00", "cannot read|not valid YAML")],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*absent\.yaml"):
        load_config(tmp_path / "absent.yaml")


@given(st.text(max_size=30))
def test_any_override_is_taken_or_refused_as_a_configuration_error(text: str) -> None:
    try:
        load_config(None, [ENTRY, MODEL, text])
    except ConfigError as error:
        message = str(error)
    else:
        return
    assert message
