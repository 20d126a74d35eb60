"""Who speaks to whom, and when."""
