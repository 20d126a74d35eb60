"""Metrics of accuracy, diversity and fairness: one value per user first."""

from tacit.evaluation.cold_items import evaluate_cold_items
from tacit.evaluation.compare import ComparedMethod, MethodComparison, PairedTest, average, compare_methods, holm
from tacit.evaluation.config import EvaluationConfig
from tacit.evaluation.evaluate import evaluate
from tacit.evaluation.heldout import sample_users, select_heldout
from tacit.evaluation.leak import LeakVerdict, SwapTest, is_decided, judge_leak, sample_stages, swap
from tacit.evaluation.lists import CategoryBias
from tacit.evaluation.placebo import Placebo, PlaceboResult, compare_ranks, draw_placebo, hold_out
from tacit.evaluation.ranking import EvaluationOptions, PairScorer, Scorer
from tacit.evaluation.result import Evaluation, mean_interval
from tacit.evaluation.steps import evaluate_steps

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
    "Placebo",
    "PlaceboResult",
    "Scorer",
    "SwapTest",
    "average",
    "compare_methods",
    "compare_ranks",
    "draw_placebo",
    "evaluate",
    "evaluate_cold_items",
    "evaluate_steps",
    "hold_out",
    "holm",
    "is_decided",
    "judge_leak",
    "mean_interval",
    "sample_stages",
    "sample_users",
    "select_heldout",
    "swap",
]
