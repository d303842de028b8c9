"""What the daemon tells: one stream of events, from which logs are derived."""
