"""The events of a run, and the observers that record and display them.

Nothing here imports torch, so that the driver starts without it.
"""

from flambeau.observe.event import Event, Observer, Observers
from flambeau.observe.event_log import EventLog, read_events
from flambeau.observe.mlperf import MLPerfLog
from flambeau.observe.output_files import OutputFiles
from flambeau.observe.progress import display
from flambeau.observe.prometheus import LatestMetrics, MetricsFile, metrics_text
from flambeau.observe.stage_display import stage_display
from flambeau.observe.tensorboard import TensorBoardScalars

__all__ = [
    "Event",
    "EventLog",
    "LatestMetrics",
    "MLPerfLog",
    "MetricsFile",
    "Observer",
    "Observers",
    "OutputFiles",
    "TensorBoardScalars",
    "display",
    "metrics_text",
    "read_events",
    "stage_display",
]
