"""How tasks become messages and reach their queues, one by one or many."""
