"""Shared code of the benchmarks: alternating timing, memory, GPU measurements and records."""
