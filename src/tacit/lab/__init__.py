"""Simulations and experiments: training, comparison, search."""
