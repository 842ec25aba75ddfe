"""The contenders of `benchmarks/simulation.py`, each able to do one round on demand."""
