"""What benchmarks share: two ways to do one thing, taking turns, and the record of it."""
