"""Peers without a server: a device that exchanges models with others through a carrier (docs/peers.md)."""
