"""A private RabbitMQ node and a private Postgres cluster for the tests and the demo.

Only the standard library, and nothing of the product: it must run before anything is installed.
"""
