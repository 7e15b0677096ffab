"""One HTML page about a fitted model and its predictions for rows whose values are known."""

from halfgp.report.evaluation import Evaluation
from halfgp.report.page import build_page

__all__ = ["Evaluation", "build_page"]
