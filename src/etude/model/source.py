"""Where a model's weights are, decided from its name alone: nothing is loaded, and torch is not imported.

A name is a folder in Hugging Face's format, a folder with a LoRA adapter, a `.gguf` file (a path, or
`package/file.gguf` inside an installed Python package), the id of a model on the hub, "etude-demo": the small model
that comes with Etude (`etude.recipes.email_demo`), or "tiny-random": a toy with random weights (`etude.model.tiny`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import huggingface_hub
from huggingface_hub.errors import CacheNotFound, HFValidationError, RepositoryNotFoundError

from etude.errors import ModelError

HUB_TIMEOUT_S = 4.0
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")

TINY_RANDOM = "tiny-random"
BUNDLED = "etude-demo"

SourceKind = Literal["folder", "adapter", "gguf", "hub", "tiny"]


@dataclass(frozen=True, slots=True)
class ModelSource:
    """name: as the person wrote it. path: the folder or the .gguf file; None for the toy, and for a model on the hub
    that is not in the cache yet. base: for an adapter, the model that it sits on."""

    name: str
    kind: SourceKind
    path: Path | None
    base: ModelSource | None = None


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model that can be used here without a network. size: bytes on disk."""

    name: str
    kind: SourceKind
    path: Path
    size: int


def resolve_model(name: str) -> ModelSource:
    """Find the model called `name`. Raises ModelError, which says where was looked and which names would work.

    The network is asked only for a hub id that is not in the cache, and for at most HUB_TIMEOUT_S seconds.
    """
    if name == TINY_RANDOM:
        return ModelSource(name, "tiny", None)
    if name == BUNDLED:
        return _resolve_folder(name, Path(str(resources.files("etude"))) / "recipes" / "email_demo" / "model")
    path = Path(name).expanduser()
    if path.is_dir():
        return _resolve_folder(name, path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"model {name!r} is a file that is not .gguf: name the folder that holds config.json")
        return ModelSource(name, "gguf", path)
    if packaged := _packaged_gguf(name):
        return ModelSource(name, "gguf", packaged)
    if path.suffix == ".gguf":
        raise _not_on_disk(name)
    try:
        snapshot = _cached_snapshot(name)
    except HFValidationError as error:
        raise _not_on_disk(name) from error
    if snapshot:
        return ModelSource(name, "hub", snapshot)
    if problem := _hub_problem(name):
        raise ModelError(
            f"model {name!r} not found: there is no such folder, it is not in the Hugging Face cache "
            f"({huggingface_hub.constants.HF_HUB_CACHE}), and {problem}. {_names_that_work()}"
        )
    return ModelSource(name, "hub", None)


def installed_models() -> list[InstalledModel]:
    """Models in the Hugging Face cache and GGUF files in installed packages, by name."""
    return sorted([*_cached_models(), *_packaged_models()], key=lambda model: model.name)


def _resolve_folder(name: str, folder: Path) -> ModelSource:
    if (folder / "adapter_config.json").is_file():
        return _resolve_adapter(name, folder)
    if not (folder / "config.json").is_file():
        files = ", ".join(sorted(str(folder / file.name) for file in folder.glob("*.gguf")))
        hint = f"name the file itself: {files}" if files else "a model's folder holds config.json"
        raise ModelError(f"model folder {name!r} has no config.json: {hint}")
    if not _has_weights(folder):
        raise ModelError(f"model folder {name!r} has config.json but no weights ({' or '.join(_WEIGHTS)})")
    return ModelSource(name, "folder", folder)


def _resolve_adapter(name: str, folder: Path) -> ModelSource:
    file = folder / "adapter_config.json"
    try:
        base = json.loads(file.read_text())["base_model_name_or_path"]
    except (ValueError, KeyError) as error:
        raise ModelError(f"{file} is not a LoRA adapter's configuration: {error!r}") from error
    if not base:
        raise ModelError(f"{file} does not name its base model: set base_model_name_or_path")
    return ModelSource(name, "adapter", folder, base=resolve_model(base))


def _has_weights(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in _WEIGHTS)


def _packaged_gguf(name: str) -> Path | None:
    package, _, file = name.partition("/")
    if not (file.endswith(".gguf") and package.isidentifier()):
        return None
    spec = importlib.util.find_spec(package)
    folders = (spec.submodule_search_locations if spec else None) or ()
    return next((path for folder in folders if (path := Path(folder) / file).is_file()), None)


def _packaged_models() -> Iterator[InstalledModel]:
    for distribution in importlib.metadata.distributions():
        for file in distribution.files or ():
            if file.suffix == ".gguf" and len(file.parts) == 2:
                path = Path(str(distribution.locate_file(file)))
                yield InstalledModel(str(file), "gguf", path, path.stat().st_size)


def _cached_models() -> Iterator[InstalledModel]:
    try:
        repositories = huggingface_hub.scan_cache_dir().repos
    except CacheNotFound:
        return
    for repository in repositories:
        snapshot = _cached_snapshot(repository.repo_id) if repository.repo_type == "model" else None
        if snapshot:
            yield InstalledModel(repository.repo_id, "hub", snapshot, repository.size_on_disk)


def _cached_snapshot(name: str) -> Path | None:
    """The cached folder of a hub model, where it holds weights and not only a configuration."""
    config = huggingface_hub.try_to_load_from_cache(name, "config.json")
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and _has_weights(folder) else None


def _hub_problem(name: str) -> str:
    """Why the hub cannot give `name`; empty if it can. In a thread, because no time limit covers a name server."""
    outcome: list[str] = []

    def ask() -> None:
        try:
            huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT_S)
            outcome.append("")
        except RepositoryNotFoundError:
            outcome.append("huggingface.co has no such model (or it needs a login)")
        except Exception as error:  # noqa: BLE001 - the client's HTTP errors differ between its versions; all are told
            outcome.append(f"huggingface.co cannot be asked ({str(error) or repr(error)})")

    thread = threading.Thread(target=ask, name="etude-ask-hub", daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    return outcome[0] if outcome else f"huggingface.co did not answer within {HUB_TIMEOUT_S:g} s"


def _not_on_disk(name: str) -> ModelError:
    return ModelError(f"model {name!r} not found: there is no such file or folder. {_names_that_work()}")


def _names_that_work() -> str:
    names = ", ".join([*(model.name for model in installed_models()), BUNDLED, TINY_RANDOM])
    return f"Names that work here: {names}; or a folder with config.json; or a .gguf file."
