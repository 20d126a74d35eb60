"""How it is learnt: one file per method."""
