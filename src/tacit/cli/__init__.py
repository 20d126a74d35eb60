"""The command line: each command fits on one screen."""

from tacit.cli.app import main

__all__ = ["main"]
