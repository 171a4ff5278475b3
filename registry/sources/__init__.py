"""Places that models come from, behind one seam (`registry.sources.source`)."""
