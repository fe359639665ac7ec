"""Every error that Etude raises on purpose, each with the exit code that the command line gives for it.

A message says what was wrong, where, and what to do. Faults of a rollout (a broken tool, a broken grader) are
data, not errors: see `etude.rollout.outcome`.
"""


class EtudeError(Exception):
    """Base of all errors that are shown to a person without a traceback."""

    exit_code = 1


class ConfigError(EtudeError):
    """A configuration, a command line or an environment definition that cannot work."""

    exit_code = 2


class DataError(EtudeError):
    """A data file that cannot be used; the message names file and line."""

    exit_code = 3


class ModelError(EtudeError):
    """A model that cannot be found, loaded or used for this purpose."""

    exit_code = 4


class StorageError(EtudeError):
    """Disk or database trouble (full disk, locked or newer store). What was written before stays valid."""

    exit_code = 5


class TrainingError(EtudeError):
    """Training or measuring cannot go on (for instance: a loss that is not a number, or every rollout faults)."""

    exit_code = 6


class RunCancelled(EtudeError):
    """The person stopped the run; it is marked cancelled and can be resumed."""

    exit_code = 130


class RunPaused(RunCancelled):
    """A health rule stopped the run, as health.pause_on says; it is marked cancelled and can be resumed."""

    exit_code = 7
