"""What all tests share: reproducible hypothesis, and the helpers of `contracts` on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # for `from contracts.backends import ...`

# Before any test imports Triton, which reads it once: here kernels are interpreted, on the CPU.
os.environ["TRITON_INTERPRET"] = "1"

settings.register_profile(
    "halfgp", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("halfgp")

# Tests are small: threads would only wait for one another, here and in processes that tests start. Those
# about threads ask for them; that no result rests on there being one is seen by running all with more.
THREADS = os.environ.get("HALFGP_TEST_THREADS", "1")
os.environ["OMP_NUM_THREADS"] = THREADS
torch.set_num_threads(int(THREADS))
