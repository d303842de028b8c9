"""The benchmarks: programs that drain the same jobs by different means, and print how they compare.

`make bench` runs them. docs/explanation/performance.md has the method and the figures.
"""
