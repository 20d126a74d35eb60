"""Building blocks of methods that are no methods themselves."""
