"""Every batch of a task once, whoever sends it."""

from flambeau.checkpoint.tree import flatten, unflatten
from flambeau.parameter_server.watermarks import Watermarks


def after(*keys: tuple[int, int, int]) -> Watermarks:
    marks = Watermarks()
    for key in keys:
        assert marks.accept(*key)
    return marks


def loaded(*dumps: list[list[int]]) -> Watermarks:
    marks = Watermarks()
    marks.load([unflatten(*flatten(dump)) for dump in dumps])
    return marks


def test_a_batch_is_accepted_once() -> None:
    marks = after((0, 7, 0), (0, 7, 1))
    assert not marks.accept(0, 7, 1)
    assert not marks.accept(0, 7, 0)
    assert marks.accept(0, 7, 2)


def test_tasks_and_epochs_have_marks_of_their_own() -> None:
    marks = after((0, 7, 3))
    assert marks.accept(0, 8, 0)
    assert marks.accept(1, 7, 0)


def test_the_epoch_before_may_still_be_finished() -> None:
    marks = after((0, 1, 0), (1, 1, 0))
    assert marks.accept(0, 1, 1)
    assert not marks.accept(0, 1, 0)


def test_epochs_that_are_long_over_are_refused_and_forgotten() -> None:
    marks = after((0, 1, 0), (1, 1, 0), (2, 1, 0))
    assert not marks.accept(0, 1, 5)
    assert marks.dump() == [[1, 1, 1], [2, 1, 1]]


def test_marks_survive_a_checkpoint() -> None:
    marks = loaded(after((0, 1, 4), (1, 2, 0)).dump())
    assert not marks.accept(0, 1, 4)
    assert not marks.accept(1, 2, 0)
    assert marks.accept(0, 1, 5)


def test_the_epoch_survives_a_checkpoint() -> None:
    assert not loaded(after((0, 1, 0), (5, 1, 0)).dump()).accept(3, 9, 0)


def test_of_several_shards_what_one_has_not_got_is_missing() -> None:
    ahead, behind = after((0, 1, 4), (0, 2, 0)), after((0, 1, 2))
    marks = loaded(ahead.dump(), behind.dump())
    assert not marks.accept(0, 1, 2)
    assert marks.accept(0, 1, 3)
    assert marks.accept(0, 2, 0)


def test_shards_without_marks_begin_at_the_beginning() -> None:
    assert loaded([], []).accept(0, 0, 0)
    assert loaded().accept(0, 0, 0)
