"""What benchmarks/decode.py is made of: systems that translate, workloads, rounds of measurements, memory."""
