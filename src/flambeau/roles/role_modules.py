"""The modules that contain the code of each role."""

from collections.abc import Sequence

from flambeau.coordination.roles import Role

#: Function that each role runs (`module:function`), imported after the role joins the coordinator.
ROLES = {
    Role.WORKER: "flambeau.roles.worker:work",
    Role.SERVER: "flambeau.roles.server:serve",
    Role.EVALUATOR: "flambeau.roles.evaluator:follow_run",
    Role.FUNCTION: "flambeau.roles.function:call",
    Role.SCRIPT: "flambeau.roles.script:run_script",
    Role.PREDICTOR: "flambeau.roles.predictor:predict_parts",
    Role.PREPARER: "flambeau.roles.preparer:prepare_parts",
}


#: Modules that training imports anyway: creating a torch optimizer loads torch's compiler.
_ALSO = {Role.WORKER: ("torch._dynamo",), Role.SERVER: ("torch._dynamo",)}


def modules_of(roles: Sequence[Role]) -> tuple[str, ...]:
    """Return the modules to import before roles of these kinds are forked, each once."""
    own = [ROLES[role].partition(":")[0] for role in roles]
    also = [name for role in roles for name in _ALSO.get(role, ())]
    return tuple(dict.fromkeys([*own, *also]))
