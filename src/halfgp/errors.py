"""Exceptions and warnings; every message names the argument, what was required, what came, and the remedy."""


class HalfGPError(Exception):
    """Anything that halfgp refuses to do."""


class InputError(HalfGPError, ValueError):
    """An argument that cannot be used: nothing has been computed."""


class OutOfRangeError(InputError):
    """Points or variances that the format asked for cannot hold; a wider one may."""


class FileError(HalfGPError, ValueError):
    """A file that cannot be read as what it should be, or not be written where it should go."""


class BackendError(HalfGPError, RuntimeError):
    """A backend that was asked for by name is not available here."""


class HalfGPWarning(UserWarning):
    """The result is right, but something about it deserves to be known."""


class BackendWarning(HalfGPWarning):
    """A slower backend serves than this machine could have."""
