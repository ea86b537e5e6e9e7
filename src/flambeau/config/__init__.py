"""Frozen, validated settings. Nothing here imports torch."""

from flambeau.config.clusters import (
    Attached,
    Cluster,
    ClusterSettings,
    Local,
    Ray,
    RemoteCluster,
    Spark,
    Ssh,
)
from flambeau.config.code import CodeRef
from flambeau.config.data import (
    ArrayData,
    ArrayRef,
    DataRef,
    DatasetData,
    FileData,
    FrameData,
    LoaderData,
    SpooledData,
)
from flambeau.config.job import Binding, JobSettings, columns
from flambeau.config.optimizer import OptimizerSetting, OptimizerSpec, optim
from flambeau.config.options import (
    Checkpoints,
    Compute,
    EarlyStopping,
    Evaluation,
    Images,
    Loading,
    Observe,
    Recovery,
)
from flambeau.config.schedule import Schedule
from flambeau.config.settings import Settings
from flambeau.config.strategies import AllReduce, Hybrid, ParameterServer
from flambeau.config.tables import TableSpec

__all__ = [
    "AllReduce",
    "ArrayData",
    "ArrayRef",
    "Attached",
    "Binding",
    "Checkpoints",
    "Cluster",
    "ClusterSettings",
    "CodeRef",
    "Compute",
    "DataRef",
    "DatasetData",
    "EarlyStopping",
    "Evaluation",
    "FileData",
    "FrameData",
    "Hybrid",
    "Images",
    "JobSettings",
    "LoaderData",
    "Loading",
    "Local",
    "Observe",
    "OptimizerSetting",
    "OptimizerSpec",
    "ParameterServer",
    "Ray",
    "Recovery",
    "RemoteCluster",
    "Schedule",
    "Settings",
    "Spark",
    "SpooledData",
    "Ssh",
    "TableSpec",
    "columns",
    "optim",
]
