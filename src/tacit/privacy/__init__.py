"""What may leave a device."""
