"""What is measured, not asserted. `make bench` runs all, `make bench NAME=…` one.

A benchmark is a module `bench_NAME.py` here with a function `measure()` that returns a list of
`tests.benchmarks.run.Row`.
"""
