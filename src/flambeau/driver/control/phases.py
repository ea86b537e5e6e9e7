"""The phases of a job, and the table of transitions between them."""

from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """A phase of a job: what the controller is waiting for."""

    GATHERING = "waiting for agents, with the rows that they bring"
    PREPARING = "the next generation starts when its starting point is known and its delay is over"
    RUNNING = "the roles of a generation are at work"
    SETTLING = "something failed; a better explanation may be on its way"
    ENDING = "the processes of the generation are being ended"
    OVER = "no process is left"


class Trigger(Enum):
    """A cause of a transition. For several, a condition is checked before they are triggered."""

    COMPLETE = "all agents are there"
    DUE = "the starting point is known, and the delay is over"
    FAILED = "a role failed, and the others cannot continue without it"
    LOST = "an agent is gone, the others cannot continue, and it is being replaced"
    LOST_FOR_GOOD = "an agent is gone and will not be replaced"
    LATE = "the time that the phase may take is over"
    STOP = "Ctrl-C or SIGTERM, in a job that can save and stop"
    END = "Ctrl-C or SIGTERM in any other job, a second one, or the time of grace is over"
    FINISHED = "all roles have done their work and ended"
    AGAIN = "all processes have ended, and another generation may be tried"
    FOR_GOOD = "all processes have ended, and none will be started again"


class Action(Enum):
    """An action of the controller on its way to the next phase."""

    NOTHING = "nothing"
    CHOOSE_START = "look for the checkpoint to start from"
    START_ROLES = "have the agents start the roles of a new generation"
    WAIT_FOR_CAUSE = "collect failures for a second"
    END_ROLES = "have the agents that are left end the roles of the generation"
    LOSE_AGENTS = "count agents that have not ended their roles as lost"
    REPORT_LATE = "fail with what the cluster says about agents that did not come"
    ASK_TO_STOP = "have workers save and stop"


class Move(NamedTuple):
    """A row of the table: the action, and the next phase."""

    action: Action
    to: Phase


_G, _P, _R, _S, _E, _O = Phase

#: Pairs that are missing here change nothing: see `move`.
TABLE: dict[tuple[Phase, Trigger], Move] = {
    (_G, Trigger.COMPLETE): Move(Action.CHOOSE_START, _P),
    (_G, Trigger.LATE): Move(Action.REPORT_LATE, _O),
    (_G, Trigger.LOST_FOR_GOOD): Move(Action.NOTHING, _O),
    (_G, Trigger.STOP): Move(Action.NOTHING, _O),
    (_G, Trigger.END): Move(Action.NOTHING, _O),
    (_P, Trigger.DUE): Move(Action.START_ROLES, _R),
    (_P, Trigger.LOST): Move(Action.NOTHING, _G),
    (_P, Trigger.LOST_FOR_GOOD): Move(Action.NOTHING, _O),
    (_P, Trigger.STOP): Move(Action.NOTHING, _O),
    (_P, Trigger.END): Move(Action.NOTHING, _O),
    (_R, Trigger.FINISHED): Move(Action.NOTHING, _O),
    (_R, Trigger.FAILED): Move(Action.WAIT_FOR_CAUSE, _S),
    (_R, Trigger.LOST): Move(Action.END_ROLES, _E),
    (_R, Trigger.LOST_FOR_GOOD): Move(Action.END_ROLES, _E),
    (_R, Trigger.STOP): Move(Action.ASK_TO_STOP, _R),
    (_R, Trigger.END): Move(Action.END_ROLES, _E),
    (_S, Trigger.LATE): Move(Action.END_ROLES, _E),
    (_S, Trigger.LOST): Move(Action.END_ROLES, _E),
    (_S, Trigger.LOST_FOR_GOOD): Move(Action.END_ROLES, _E),
    (_S, Trigger.END): Move(Action.END_ROLES, _E),
    (_E, Trigger.LATE): Move(Action.LOSE_AGENTS, _E),
    (_E, Trigger.AGAIN): Move(Action.NOTHING, _G),
    (_E, Trigger.FOR_GOOD): Move(Action.NOTHING, _O),
    (_E, Trigger.END): Move(Action.NOTHING, _O),
}


def move(phase: Phase, trigger: Trigger) -> Move:
    """Return the transition for a trigger; one that a phase does not expect changes nothing."""
    return TABLE.get((phase, trigger), Move(Action.NOTHING, phase))
