"""What a model may use of the machine, chosen by sliders: memory, context, cache and threads."""
