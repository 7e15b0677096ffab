"""How long does it take until halfgp is there? Beside `import torch`, in processes of their own.

python benchmarks/imports.py [--repeats 5]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

PROGRAMS = {
    "import torch": "import torch",
    "import halfgp": "import halfgp",
    "import torch, halfgp; halfgp.ExactGP": "import torch, halfgp; halfgp.ExactGP",
    "import torch, halfgp; halfgp.GPRegressor": "import torch, halfgp; halfgp.GPRegressor",
    "halfgp --help": "import sys; sys.argv[1:] = ['--help']; from halfgp.__main__ import main; main()",
}


def seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    empty = statistics.median(seconds("pass") for _ in range(repeats))
    print(f"{'':44} seconds beyond an empty program: median, least")
    for name, program in PROGRAMS.items():
        taken = [seconds(program) - empty for _ in range(repeats)]
        print(f"{name:44} {statistics.median(taken):6.2f} {min(taken):6.2f}")


if __name__ == "__main__":
    main()
