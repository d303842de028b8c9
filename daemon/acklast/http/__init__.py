"""HTTP as acklast speaks it: what an answer means, what a request is made of, and what sends it."""
