"""Models that are on the machine already: other programs' folders are read here, and never written to."""
