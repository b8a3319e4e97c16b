"""Typed tasks: functions whose arguments are sent as a JSON object, and the ``App`` that collects them."""
