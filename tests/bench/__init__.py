"""Tests of the benchmarks: that each one runs."""
