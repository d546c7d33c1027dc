"""Reproducible benchmarks. They print ratios within one run: absolute speeds are the machine's."""
