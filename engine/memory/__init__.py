"""Where bytes live: the meter that counts them, the reader that fetches them, the store that lends them."""
