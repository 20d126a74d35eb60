"""The command line: each verb one screen at most."""

from tacit.cli.app import main

__all__ = ["main"]
