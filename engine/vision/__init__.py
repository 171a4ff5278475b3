"""What a picture needs before a tower sees it: decoding, sizes and patches, positions. Host arrays alone, no `Ops`."""
