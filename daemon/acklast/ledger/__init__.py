"""The authority on every job: one interface, a Postgres store and an in-memory store."""
