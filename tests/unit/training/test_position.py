from flambeau.training.position import Position


def trained(*rows: int) -> Position:
    position = Position()
    for count in rows:
        position.advance(count)
    return position


def test_an_update_moves_steps_and_rows_on() -> None:
    assert trained(8, 5) == Position(step=2, step_in_epoch=2, rows=13, rows_in_epoch=13)


def test_a_new_epoch_begins_at_its_first_step() -> None:
    position = trained(8, 5)
    position.start_row = 4
    position.next_epoch()
    assert position == Position(step=2, epoch=1, rows=13)


def test_other_workers_go_on_at_the_exact_row_where_rows_have_numbers() -> None:
    position = trained(8, 8)
    position.change_workers(by_row=True)
    position.advance(12)
    position.change_workers(by_row=True)
    assert (position.start_row, position.step_in_epoch, position.repeated) == (28, 0, 0)


def test_other_workers_start_the_epoch_again_otherwise_and_say_what_is_repeated() -> None:
    position = trained(8, 8)
    position.change_workers(by_row=False)
    assert (position.start_row, position.step_in_epoch, position.repeated) == (0, 0, 16)
    assert (position.step, position.rows) == (2, 0)


def test_it_comes_back_from_a_checkpoint_as_it_was() -> None:
    position = trained(8, 5)
    position.change_workers(by_row=True)
    assert Position(**position.dump()) == position


def test_rows_left_out_are_read_and_taken_back_with_an_epoch_that_starts_again() -> None:
    position = Position()
    position.advance(8, 3)
    position.next_epoch()
    position.advance(8, 2)
    assert (position.rows, position.left_out) == (16, 5)
    position.change_workers(by_row=False)
    assert (position.rows, position.repeated, position.left_out) == (8, 8, 3)
