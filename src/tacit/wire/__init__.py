"""Bytes between devices and coordinators: messages, and the terms of a federation."""
