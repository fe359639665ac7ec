"""The engine in this process: the weights that train are the weights that sample."""

from etude.engine.local.core import EngineCore
from etude.engine.local.local import LocalEngine
from etude.engine.local.stats import EngineStats

__all__ = ["EngineCore", "EngineStats", "LocalEngine"]
