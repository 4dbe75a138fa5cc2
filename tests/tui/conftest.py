from tests.settled import wait_for_what_is_due

wait_for_what_is_due()
