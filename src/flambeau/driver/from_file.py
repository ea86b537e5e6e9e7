"""Running the job that a job file describes."""

import sys
from pathlib import Path

from flambeau.checkpoint import RunDirectory
from flambeau.config.job_file import JobFile
from flambeau.driver.fit import run_job
from flambeau.driver.job_packager import JobPackager
from flambeau.driver.result import Result


def run_file(job: JobFile, folder: Path) -> Result:
    """Run the job to its end; modules in `folder` (that of the job file) can be imported."""
    sys.path.insert(0, str(folder.resolve()))
    settings = job.settings()
    run = RunDirectory(job.run_dir)
    initial = job.init_from.model_dump() if job.init_from else None
    with run.lock():
        description = JobPackager(run.path)
        return run_job(run, settings, description, resume=job.resume, init_from=initial)
