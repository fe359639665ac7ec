"""Finding and calling the function that an entry point names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from etude.environment.blame import blame
from etude.errors import ConfigError, EtudeError

FORMS = "use 'package.module:function', 'path/to/file.py:function' or the name of a recipe"


def call_entry(entry: str, args: Mapping[str, Any]) -> Any:
    """What the function that `entry` names returns for `args`. Raises ConfigError; EtudeErrors pass as they are."""
    function = find_entry(entry)
    try:
        bound = inspect.signature(function).bind(**args)
    except TypeError as error:
        takes = ", ".join(inspect.signature(function).parameters) or "no arguments"
        raise ConfigError(f"{entry}: {error}; the function takes: {takes}") from error
    try:
        return function(*bound.args, **bound.kwargs)
    except EtudeError:
        raise
    except Exception as error:
        raise ConfigError(f"{entry}: the function raised {blame(error)}") from error


def find_entry(entry: str) -> Callable[..., Any]:
    """Raises ConfigError where file, module or function is missing, or the module cannot be imported."""
    target, colon, name = entry.rpartition(":")
    if not colon:
        module, name = _recipe(entry), "environment"
    elif target.endswith(".py"):
        module = _import_file(entry, Path(target))
    else:
        module = _import_module(entry, target)
    if not hasattr(module, name):
        raise ConfigError(f"{entry}: {target or module.__name__} has no function {name!r}")
    function = getattr(module, name)
    if not callable(function):
        raise ConfigError(f"{entry}: {name!r} is a {type(function).__name__}, not a function")
    return function


def _recipe(name: str) -> ModuleType:
    import etude.recipes

    known = sorted(found.name for found in pkgutil.iter_modules(etude.recipes.__path__))
    if name not in known:
        raise ConfigError(f"there is no recipe {name!r} (recipes: {', '.join(known) or 'none'}); {FORMS}")
    return _import(name, lambda: importlib.import_module(f"etude.recipes.{name}"))


def _import_module(entry: str, name: str) -> ModuleType:
    _import_from(Path.cwd())
    try:
        return _import(entry, lambda: importlib.import_module(name))
    except ConfigError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{name}.".startswith(f"{cause.name}."):
            raise ConfigError(
                f"{entry}: there is no module {cause.name!r} (also not in {Path.cwd()}); {FORMS}"
            ) from cause
        raise


def _import_file(entry: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"{entry}: there is no file {path} (working directory: {Path.cwd()})")
    path = path.resolve()
    _import_from(path.parent)
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"etude_entry_{path.stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{entry}: {path} cannot be imported as Python")
    return _import(entry, lambda: _run_module(spec))


def _run_module(spec: ModuleSpec) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # before it runs: dataclasses look their module up
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def _import_from(folder: Path) -> None:
    """Modules beside an entry can be imported, as they can be from a script."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import(entry: str, load: Callable[[], ModuleType]) -> ModuleType:
    try:
        return load()
    except EtudeError:
        raise
    except Exception as error:
        raise ConfigError(f"{entry}: importing it raised {blame(error)}") from error
