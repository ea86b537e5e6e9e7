"""Saving and loading with Spark's file systems: metadata, and files beside it."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, final

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReader, MLWriter
from pyspark.sql import SparkSession

from flambeau.clusters.spark.cluster import is_connect
from flambeau.data.sources.urls import file_system, is_url, local_path
from flambeau.errors import DataError
from flambeau.spark.params import is_json


@cache
def temporary_folder() -> Path:
    """Return a folder for this process's models, which is removed when the process ends.

    A DataFrame may need it as long as the process lives. A shell waits until a pipe is closed and
    then removes it, so that it is removed even if a signal ends the process.
    """
    path = Path(tempfile.mkdtemp(prefix="flambeau-spark-"))
    reads, writes = os.pipe()
    remover = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; rm -rf "$1"', "sh", str(path)],
        stdin=reads,
        cwd="/",
        start_new_session=True,  # Ctrl-C must not reach it
    )
    os.close(reads)
    atexit.register(_end, remover, writes)
    return path


def _end(remover: "subprocess.Popen[bytes]", writes: int) -> None:
    os.close(writes)
    remover.wait()


def new_folder(name: str) -> Path:
    """Return the path of a new folder, which the caller creates."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=temporary_folder())) / "model"


@final
class StageWriter(MLWriter):
    """Writer of a stage that keeps its own files in a folder."""

    def __init__(self, stage: Any) -> None:
        super().__init__()
        self._stage = stage

    def saveImpl(self, path: str) -> None:  # noqa: N802 - Spark's name
        """Write the params as metadata, and then the files."""
        session = self.sparkSession
        params = {param.name: value for param, value in self._stage._paramMap.items()}
        kept = {name: value for name, value in params.items() if is_json(value)}
        made = DefaultParamsWriter._get_metadata_to_save(self._stage, session, None, kept)
        folder = self._stage._files({name: params[name] for name in params.keys() - kept.keys()})
        frame = session.createDataFrame([(made,)], ["value"])
        frame.coalesce(1).write.text(f"{path}/metadata")
        if folder is not None:
            put_folder(folder, f"{path}/files", session)

    def _handleOverwrite(self, path: str) -> None:  # noqa: N802 - Spark's name
        self._stage._leave(path)
        if is_connect(self.sparkSession):
            from pyspark.ml.connect.readwrite import RemoteMLWriter

            RemoteMLWriter.handleOverwrite(path, True)
        else:
            super()._handleOverwrite(path)


@final
class StageReader(MLReader[Any]):
    """Reader of the stages that a `StageWriter` wrote."""

    def __init__(self, kind: type[Any]) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        """Read the stage at a path."""
        session = self.sparkSession
        row = session.read.text(f"{path}/metadata").first()
        assert row is not None, "Spark has read the metadata before"
        metadata = json.loads(row[0])
        stage: Any = self._kind()
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        stage._load(path, session)
        return stage


def put_folder(folder: Path, place: str, session: SparkSession) -> None:
    """Copy a folder to any place where Spark has just written metadata."""
    beside = Path(local_path(place)).parent
    if not is_url(place) and (beside / "metadata").is_dir():
        shutil.copytree(folder, local_path(place))
    elif not is_connect(session):
        _hadoop(place, session).copyFromLocalFile(
            _path(str(folder.absolute()), session), _path(place, session)
        )
    elif is_url(place):
        found, path = file_system(place)
        found.put(str(folder), path, recursive=True)
    else:
        raise DataError(
            f"Spark's server wrote {beside}, which this machine cannot read; save to a URL that "
            "both can reach, such as s3://bucket/model"
        )


def get_folder(place: str, session: SparkSession, marker: str) -> Path | None:
    """Return a folder that `put_folder` wrote, on this machine; None if there is none.

    If this machine can access it, it is not copied. `marker` is a file that it contains.
    """
    here = Path(local_path(place))
    if not is_url(place) and (here / marker).is_file():
        return here
    target = new_folder("loaded")
    if not is_connect(session):
        files = _hadoop(place, session)
        if not files.exists(_path(place, session)):
            return None
        files.copyToLocalFile(False, _path(place, session), _path(str(target), session), True)
    elif is_url(place):
        found, path = file_system(place)
        if not found.exists(path):
            return None
        found.get(path, str(target), recursive=True)
    return target if target.is_dir() else None


def _hadoop(place: str, session: SparkSession) -> Any:
    """Return Hadoop's file system for a place, from Spark's own JVM."""
    settings = session._jsparkSession.sessionState().newHadoopConf()
    return _path(place, session).getFileSystem(settings)


def _path(place: str, session: SparkSession) -> Any:
    jvm: Any = session._jvm
    return jvm.org.apache.hadoop.fs.Path(place)
