"""From logits to a reply: the cache of a conversation, the sampler, the generate loop, and what measures them."""
