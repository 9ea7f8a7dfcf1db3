"""Experiments: what one holds (`record`), where they lie (`location`, `store`), the session's `log`."""
