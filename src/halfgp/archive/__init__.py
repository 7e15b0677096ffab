"""A model as one file: its settings, what was found, and its rows; no code is run."""

from halfgp.archive.models import load_model, save_model

__all__ = ["load_model", "save_model"]
