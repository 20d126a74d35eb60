"""How good, how varied, how fair: one value per person first."""
