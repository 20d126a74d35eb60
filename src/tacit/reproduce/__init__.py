"""Published tables and figures beside ours: one file of numbers and recipes per paper."""

from tacit.reproduce.base import Reproduced, Reproduction, reproduce, reproductions

__all__ = ["Reproduced", "Reproduction", "reproduce", "reproductions"]
