"""Reports from histories on disk: tables, figures, one HTML page, TensorBoard event files.

Figures need matplotlib, which the extra `sim` brings; it is imported only when a report is written.
"""

from fedhaw.reports.comparison import Comparison, Group, Reach, Spread, compare, load
from fedhaw.reports.holdings import HoldingsError, draw_holdings
from fedhaw.reports.keeping import keep as keep_histories
from fedhaw.reports.metrics import Notation
from fedhaw.reports.report import Report, ReportError, write_report
from fedhaw.reports.table_formats import (
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_rich,
    to_text,
    write_table,
)
from fedhaw.reports.tables import Column, Table, comparison_table
from fedhaw.reports.tensorboard import TensorBoardLog, TrackingError, write_tensorboard

__all__ = [
    "Column",
    "Comparison",
    "Group",
    "HoldingsError",
    "Notation",
    "Reach",
    "Report",
    "ReportError",
    "Spread",
    "Table",
    "TensorBoardLog",
    "TrackingError",
    "compare",
    "comparison_table",
    "draw_holdings",
    "keep_histories",
    "load",
    "to_csv",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_rich",
    "to_text",
    "write_report",
    "write_table",
    "write_tensorboard",
]
