"""A trained model that recommends."""
