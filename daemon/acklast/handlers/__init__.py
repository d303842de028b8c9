"""Handlers: how a program says what a job does, and how one attempt of it runs."""
