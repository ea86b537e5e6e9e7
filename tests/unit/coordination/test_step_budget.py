"""How the steps that are left are shared out."""

from flambeau.coordination.step_budget import StepBudget


def test_all_steps_are_made_and_none_too_many() -> None:
    budget, made = StepBudget(100, workers=3), 0
    own = dict.fromkeys(range(3), 0)
    while not all(budget.is_spent(worker) for worker in own):
        for worker in own:
            own[worker] += budget.grant(worker)
            if own[worker]:
                own[worker] -= 1
                made += 1
                budget.made(worker, 1, 1)
    assert made == 100


def test_grants_become_smaller_towards_the_end() -> None:
    budget = StepBudget(100, workers=2)
    assert [budget.grant(worker) for worker in (0, 1)] == [25, 18]
    budget.made(0, 25, 25)
    assert budget.grant(0) == 14


def test_who_has_enough_gets_nothing() -> None:
    budget = StepBudget(100, workers=2)
    budget.grant(0)
    assert budget.grant(0) == 0


def test_what_an_idle_worker_leaves_others_may_make() -> None:
    budget = StepBudget(2, workers=2)
    assert (budget.grant(0), budget.grant(1)) == (1, 1)
    budget.made(0, 1, 1)
    assert budget.is_spent(0)
    assert budget.take_back(1) == 1
    assert budget.grant(0) == 1


def test_a_step_that_was_made_twice_counts_once() -> None:
    budget = StepBudget(1, workers=1)
    budget.grant(0)
    budget.made(0, 1, 0)
    assert not budget.is_spent(0)
    assert budget.grant(0) == 1


def test_only_steps_that_came_back_may_be_granted_to_workers_that_had_enough() -> None:
    budget = StepBudget(100, workers=2)
    budget.grant(0)
    budget.made(0, 1, 1)
    assert not budget.has_grown()
    budget.made(0, 1, 0)
    assert budget.has_grown()
    assert not budget.has_grown()
    budget.take_back(0)
    assert budget.has_grown()
