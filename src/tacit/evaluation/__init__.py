"""How good, how varied, how fair: one value per person first."""

from tacit.evaluation.compare import ComparedMethod, MethodComparison, PairedTest, average, compare_methods, holm
from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.evaluate import evaluate
from tacit.evaluation.heldout import sample_people, select_heldout
from tacit.evaluation.leak import LeakVerdict, SwapTest, is_decided, judge_leak, sample_stages, swap
from tacit.evaluation.lists import CategoryBias
from tacit.evaluation.ranking import EvaluationOptions, PairScorer, Scorer
from tacit.evaluation.result import Evaluation, mean_interval

__all__ = [
    "CategoryBias",
    "ComparedMethod",
    "Evaluation",
    "EvaluationConfig",
    "EvaluationOptions",
    "LeakVerdict",
    "MethodComparison",
    "PairScorer",
    "PairedTest",
    "Scorer",
    "SwapTest",
    "average",
    "compare_methods",
    "evaluate",
    "holm",
    "is_decided",
    "judge_leak",
    "mean_interval",
    "sample_people",
    "sample_stages",
    "select_heldout",
    "swap",
]
