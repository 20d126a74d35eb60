"""Published tables and figures beside ours: one file of numbers and recipes per paper."""

from tacit.studies.base import Reproduction, ReproductionResult, reproduce, reproductions

__all__ = ["Reproduction", "ReproductionResult", "reproduce", "reproductions"]
