"""Arrays in, arrays out: the inner loops, compiled."""
