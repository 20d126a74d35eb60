"""Published tables and figures beside ours: one file of numbers and recipes per paper."""

from tacit.studies.base import PlannedStudy, Reproduction, ReproductionResult, plan_studies, reproduce, reproductions

__all__ = ["PlannedStudy", "Reproduction", "ReproductionResult", "plan_studies", "reproduce", "reproductions"]
