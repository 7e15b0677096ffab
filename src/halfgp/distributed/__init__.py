"""Rows shared out over the processes of a torch.distributed group."""

from halfgp.distributed.ranks import Ranks, alone, ranks_here
from halfgp.distributed.traffic import Traffic

__all__ = ["Ranks", "Traffic", "alone", "ranks_here"]
