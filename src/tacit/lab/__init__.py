"""Where learning runs."""
