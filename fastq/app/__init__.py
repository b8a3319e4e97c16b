"""Typed tasks: functions whose arguments travel as a JSON object, and the ``App`` that holds them."""
