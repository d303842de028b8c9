"""Schedules: what is due, the rows of a firing, and the process that makes runs of them."""
