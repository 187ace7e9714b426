"""The parts of benchmarks/decode.py: systems that translate, workloads, rounds of measurements, memory."""
