"""Crash tests: real daemons, killed by SIGKILL at named points and at random moments."""
