"""How quick and how small remanence is on this machine: `python -m benchmarks --help`."""
