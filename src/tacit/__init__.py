"""Tacit: recommendations that learn from people without collecting what they did."""
