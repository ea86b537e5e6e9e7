"""Every exception Flambeau raises.

    FlambeauError
    ├── UserError (ValueError)       something to change in the call, the job file or the data
    │   ├── ConfigError              a setting: which one, its value, what would be right
    │   ├── DataError                a file, a column, a row
    │   │   ├── UntrustedError       a file that may hold code, which nobody allowed to run
    │   │   └── NotSharedError       a folder that not all machines of a cluster see
    │   ├── ModelError               the model, its loss or its optimizer do not fit together
    │   │   └── NotATensorError (AttributeError)    bags of ids, used as a tensor
    │   ├── RunDirectoryError        a run directory that cannot be used as asked
    │   └── MissingDependencyError   something to install, and how
    ├── JobFailedError (RuntimeError)    a job that ended without a result
    │   ├── WorkerFailedError        a worker raised; holds its traceback
    │   └── WorkerLostError          a worker died or fell silent
    ├── CheckpointError              a checkpoint that is corrupt, truncated or not there
    └── MessagingError               processes that cannot talk to each other
        ├── ProtocolError            a message that is not one of ours
        └── RequestTimeoutError      no answer in time; names the address

All survive pickling: what they carry is in `args`.
"""


class FlambeauError(Exception):
    """The root of all of them."""


class UserError(FlambeauError, ValueError):
    """A mistake in what was asked; shown without a stack trace by the command line."""


class ConfigError(UserError):
    """A setting that is wrong."""


class DataError(UserError):
    """Data that cannot be read or does not fit."""


class UntrustedError(DataError):
    """A file that may run the code of whoever made it, without leave to do so."""


class NotSharedError(DataError):
    """A folder that machines of a cluster do not see, although they work in it."""


class ModelError(UserError):
    """A model, loss, step or optimizer that does not fit the rest of the job."""


class NotATensorError(ModelError, AttributeError):
    """A column of bags that was used as a tensor."""


class RunDirectoryError(UserError):
    """A run directory that is taken, foreign or cannot be written."""


class MissingDependencyError(UserError):
    """An optional part that is not installed."""


class JobFailedError(FlambeauError, RuntimeError):
    """A job that ended without a result."""


class WorkerFailedError(JobFailedError):
    """A worker raised an exception; `worker_traceback` is the text it would have printed."""

    def __init__(self, message: str, worker_traceback: str = "") -> None:
        super().__init__(message, worker_traceback)
        self.message = message
        self.worker_traceback = worker_traceback

    def __str__(self) -> str:
        return f"{self.message}\n{self.worker_traceback}".rstrip()


class WorkerLostError(JobFailedError):
    """A worker died without an exception of its own, or stopped answering."""


class CheckpointError(FlambeauError):
    """A checkpoint that cannot be read."""


class SnapshotLostError(CheckpointError):
    """A checkpoint that was not completed, since a server was lost meanwhile."""


class MessagingError(FlambeauError):
    """Processes that cannot talk to each other."""


class ProtocolError(MessagingError):
    """A message that is malformed, too large or of another protocol version."""


class RequestTimeoutError(MessagingError):
    """A request that was not answered in time."""
