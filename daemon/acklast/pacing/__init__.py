"""When a job may start: slots bound what is in flight, budgets bound what is started."""
