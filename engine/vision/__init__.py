"""Pictures: decoding, sizes and patches on the host, and over `Ops` the towers that see them."""
