"""Downloads that end with a verified model or with a sentence, and go on after a crash: `registry.downloads.queue`."""
