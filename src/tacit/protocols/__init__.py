"""Which messages are exchanged, between whom, and when."""
