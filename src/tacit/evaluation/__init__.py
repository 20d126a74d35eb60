"""How good, how varied, how fair: one value per person first."""

from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.evaluate import evaluate
from tacit.evaluation.heldout import narrow, sample_people
from tacit.evaluation.ranking import PairScorer, Scorer
from tacit.evaluation.result import Evaluation

__all__ = [
    "Evaluation",
    "EvaluationConfig",
    "PairScorer",
    "Scorer",
    "evaluate",
    "narrow",
    "sample_people",
]
