"""The field: coordinator and devices brought together, in one process or over a network."""
