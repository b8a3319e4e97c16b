"""A child: it takes tasks from its ring and runs them, plain, in threads or as coroutines."""
