"""How good, how varied, how fair: one value per person first."""

from tacit.evaluation.compare import Comparison, Pair, Row, average, compare, holm
from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.evaluate import evaluate
from tacit.evaluation.heldout import narrow, sample_people
from tacit.evaluation.leak import Leak, Swapped, is_decided, stages, swap, verdict
from tacit.evaluation.lists import CategoryBias
from tacit.evaluation.ranking import EvaluationOptions, PairScorer, Scorer
from tacit.evaluation.result import Evaluation, mean_interval

__all__ = [
    "CategoryBias",
    "Comparison",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationOptions",
    "Leak",
    "Pair",
    "PairScorer",
    "Row",
    "Scorer",
    "Swapped",
    "average",
    "compare",
    "evaluate",
    "holm",
    "is_decided",
    "mean_interval",
    "narrow",
    "sample_people",
    "stages",
    "swap",
    "verdict",
]
