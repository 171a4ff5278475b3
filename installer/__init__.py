"""The bootstrap: from a checkout and a bare Python to a running program, with the standard library alone."""
