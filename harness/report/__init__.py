"""The report: one self-contained HTML page with every table, every figure and three explorers."""

from harness.report.build import render

__all__ = ["render"]
