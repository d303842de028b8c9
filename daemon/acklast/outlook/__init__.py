"""When what is open will be done, how sure that is, and what keeps it from being done sooner. Pure but for
the reading of what is known.

``facts`` is what is known at one moment; ``pace`` reads a rate out of what lately ended; ``binding`` says
what holds a lane back; ``cast`` puts them together. The command, the metrics and the backtest all go by it.
"""
